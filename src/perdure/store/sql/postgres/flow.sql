-- Limits: their rows, what runs and what waits under them.

-- name: hold_limits
-- Limits by name; those that another batch holds are skipped. Locked in one order, for whoever waits.
select namespace, scope, name, max_running, rate, per, burst, weight, paused, declared, note, updated_at, circuit
from limits
where (namespace, scope, name) in (select * from unnest($1::text[], $2::text[], $3::text[]))
order by namespace, scope, name
for update skip locked;

-- name: running
-- Leased tasks of some namespaces, counted: those that a worker process holds, and attempts that somebody outside ends.
select namespace, queue, type, concurrency_key, weight, count(*)
from (
    select namespace, queue, type, concurrency_key, weight
    from tasks
    where session is not null and namespace = any($1::text[])
    union all
    select namespace, queue, type, concurrency_key, weight
    from tasks
    where state = 2 and session is null and namespace = any($1::text[])
) as leased
group by namespace, queue, type, concurrency_key, weight;

-- name: blocked
-- Tasks that are blocked on subjects, whole, in order, as many of each as is said.
with locked as materialized (
    select waiting.*
    from unnest($1::text[], $2::integer[]) as wanted (subject, most)
    cross join lateral (
        select *
        from open_whole_v3 as task
        where task.blocked_on = wanted.subject and task.state = 1 and task.place is null
        order by task.blocked_on, task.priority, task.blocked_place, task.id
        limit wanted.most
        for update skip locked
    ) as waiting
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: buckets
-- When buckets will be full.
select subject, full_at from buckets where subject = any($1::text[]);

-- name: put_buckets
-- Insert or replace buckets.
insert into buckets (subject, full_at)
select * from unnest($1::text[], $2::bigint[])
on conflict (subject) do update set full_at = excluded.full_at;

-- name: trim_buckets
-- Delete some buckets that are full.
with gone as (
    delete from buckets
    where subject in (
        select subject from buckets where full_at <= $1 order by subject limit $2 for update skip locked
    )
    returning subject
)
select count(*) from gone;

-- name: put_limit
-- Insert or replace a limit.
insert into limits (
    namespace, scope, name, max_running, rate, per, burst, weight, paused, declared, note, updated_at, circuit
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (namespace, scope, name) do update
set max_running = excluded.max_running, rate = excluded.rate, per = excluded.per, burst = excluded.burst,
    weight = excluded.weight, paused = excluded.paused, declared = excluded.declared, note = excluded.note,
    updated_at = excluded.updated_at, circuit = excluded.circuit;

-- name: delete_limit
-- Delete a limit.
delete from limits where namespace = $1 and scope = $2 and name = $3;

-- name: limits
-- All limits.
select namespace, scope, name, max_running, rate, per, burst, weight, paused, declared, note, updated_at, circuit
from limits
order by namespace, scope, name;

-- name: limits_version
-- Tells one set of limits from another.
select count(*), coalesce(max(updated_at), 0) from limits;

-- name: blocked_subjects
-- Subjects that tasks are blocked on: each step jumps over all tasks of one.
with recursive found (subject) as (
    select (
        select blocked_on from tasks where blocked_on is not null and blocked_on > $1 order by blocked_on limit 1
    )
    union all
    select (
        select blocked_on
        from tasks
        where blocked_on is not null and blocked_on > found.subject
        order by blocked_on
        limit 1
    )
    from found
    where found.subject is not null
)
select subject from found where subject is not null limit $2;

-- name: count_blocked
-- How many tasks are blocked on each subject, up to a bound.
select wanted.subject, counted.number
from unnest($1::text[]) as wanted (subject)
cross join lateral (
    select count(*) as number
    from (select from tasks where blocked_on = wanted.subject limit $2) as waiting
) as counted
where counted.number > 0;
