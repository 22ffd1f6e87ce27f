-- Dead letters (closed tasks with a failure_group that nobody has retried), and jobs as actions on many of them pick
-- them: a statement looks at so many rows of an index and says of each whether it passes, so that none takes long
-- however few do.

-- name: mark_failed
-- Write the group and the type of the error of tasks that have closed.
update closed_tasks set failure_group = failed.failure_group, failure_type = failed.failure_type
from unnest($1::uuid[], $2::bigint[], $3::text[]) as failed (id, failure_group, failure_type)
where closed_tasks.id = failed.id;

-- name: mark_retried
-- Write which task repeats a closed one; rows that are held elsewhere are skipped.
with held as materialized (
    select closed_tasks.id, retried.retried_by
    from unnest($1::uuid[], $2::uuid[]) as retried (id, retried_by)
    join closed_tasks on closed_tasks.id = retried.id
    for update of closed_tasks skip locked
)
update closed_tasks set retried_by = held.retried_by from held where closed_tasks.id = held.id;

-- name: delete_closed
-- Delete closed jobs and their attempts; how many there were. Waits for those that are held elsewhere, in order of id.
with old as materialized (
    select id from closed_tasks where id = any($1::uuid[]) order by id for update
),
gone_attempts as (
    delete from attempts using old where attempts.task_id = old.id
),
gone as (
    delete from closed_tasks using old where closed_tasks.id = old.id returning 1
)
select count(*) from gone;

-- name: retried_by
-- Which tasks repeat closed ones.
select id, retried_by from closed_tasks where id = any($1::uuid[]) and retried_by is not null;

-- name: failure_groups
-- The groups from a number on, by looks at the first entry of each, and the newest task of each, without payload,
-- headers and result.
with recursive groups (number) as (
    (
        select failure_group
        from closed_tasks
        where namespace = $1 and failure_group >= $3 and retried_by is null
        order by failure_group
        limit 1
    )
    union all
    select (
        select failure_group
        from closed_tasks
        where namespace = $1 and failure_group > groups.number and retried_by is null
        order by failure_group
        limit 1
    )
    from groups
    where groups.number is not null
),
first as materialized (
    select number from groups where number is not null limit $2
)
select first.number, task.*
from first
cross join lateral (
    select id
    from closed_tasks
    where namespace = $1 and failure_group = first.number and retried_by is null
    order by id desc
    limit 1
) as newest
join closed_brief_v3 as task on task.id = newest.id;

-- name: count_failures
-- How many are in each group, when the first and the last of them closed, and the highest id, of so many of the newest.
select wanted.number, found.*
from unnest($2::bigint[]) as wanted (number)
cross join lateral (
    select count(*), min(closed_at), max(closed_at), (array_agg(id order by id desc))[1]
    from (
        select id, closed_at
        from closed_tasks
        where namespace = $1 and failure_group = wanted.number and retried_by is null
        order by id desc
        limit $3
    ) as newest
) as found;

-- name: find_failures
-- As `find`, of a group.
select * from closed_brief_v3
where id in (
    select id from closed_tasks
    where namespace = $2 and failure_group = $9 and retried_by is null and id < $1::uuid
        and :part(filter)
        and ($8::smallint is null or kind = $8)
    order by id desc
    limit $7
)
order by id desc;

-- part: selected
-- What jobs must be to be picked; null does not narrow it.
($4::smallint is null or state = $4)
    and ($5::text is null or queue = $5)
    and ($6::text is null or type = $6)
    and ($7::bigint is null or created_at >= $7)

-- name: pick_open
-- Open tasks, newest first, and whether each is one of those wanted.
select id, namespace = $3 and kind = $8
    and :part(selected)
from tasks
where id < $1::uuid
order by id desc
limit $2;

-- name: pick_closed
-- The same of closed tasks; `fresh` ones were not retried yet.
select id, namespace = $3 and kind = 1
    and :part(selected)
    and (not $8::boolean or retried_by is null)
from closed_tasks
where id < $1::uuid
order by id desc
limit $2;

-- name: pick_dead
-- The same of dead letters of a namespace.
select id, kind = 1
    and :part(selected)
    and ($8::bigint is null or failure_group = $8)
    and ($9::text is null or failure_type = $9)
from closed_tasks
where namespace = $3 and failure_type is not null and retried_by is null and id < $1::uuid
order by id desc
limit $2;

-- name: old_failures
-- Dead letters that closed before a time.
select namespace, type, id
from closed_tasks
where failure_type is not null and retried_by is null and closed_at < $1
limit $2;
