-- Limits: their rows, what runs and what waits under them.

-- name: hold_limits
-- Limits by name.
select namespace, scope, name, max_running, rate, per, burst, weight, paused, declared, note, updated_at, circuit
from limits
where (namespace, scope, name) in (values :rows(3));

-- name: running
-- Leased tasks of some namespaces, counted: those that a worker process holds, and attempts that somebody outside ends.
with wanted (namespace) as (values :rows(1))
select namespace, queue, type, concurrency_key, weight, count(*)
from (
    select namespace, queue, type, concurrency_key, weight
    from tasks
    where session is not null and +namespace in (select wanted.namespace from wanted)
    union all
    select namespace, queue, type, concurrency_key, weight
    from tasks
    where state = 2 and session is null and namespace in (select wanted.namespace from wanted)
)
group by namespace, queue, type, concurrency_key, weight;

-- name: blocked
-- Tasks that are blocked on a subject, whole, in order.
select :part(open_whole)
from tasks left join payloads on payloads.rowid = payload_at
where blocked_on = ? and state = 1 and place is null
order by blocked_on, priority, blocked_place, id
limit ?;

-- name: buckets
-- When buckets will be full.
select subject, full_at from buckets where subject in (values :rows(1));

-- name: put_buckets
-- Insert or replace buckets.
insert into buckets (subject, full_at)
values :rows(2)
on conflict (subject) do update set full_at = excluded.full_at;

-- name: trim_buckets
-- Delete some buckets that are full.
delete from buckets where subject in (select subject from buckets where full_at <= ? order by subject limit ?);

-- name: put_limit
-- Insert or replace a limit.
insert or replace into limits (
    namespace, scope, name, max_running, rate, per, burst, weight, paused, declared, note, updated_at, circuit
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_limit
-- Delete a limit.
delete from limits where namespace = ? and scope = ? and name = ?;

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
        select blocked_on from tasks where blocked_on is not null and blocked_on > :after order by blocked_on limit 1
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
select subject from found where subject is not null limit :most;

-- name: count_blocked
-- How many tasks are blocked on a subject, up to a bound.
select count(*) from (select 1 from tasks where blocked_on = ? limit ?);
