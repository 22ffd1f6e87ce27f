-- Dead letters (closed tasks with a failure_group that nobody has retried), and jobs as actions on many of them pick
-- them: a statement looks at so many rows of an index and says of each whether it passes, so that none takes long
-- however few do.

-- name: mark_failed
-- Write the group and the type of the error of tasks that have closed.
update closed_tasks set failure_group = column2, failure_type = column3
from (values :rows(3)) as failed
where closed_tasks.id = column1;

-- name: mark_retried
-- Write which task repeats a closed one.
update closed_tasks set retried_by = column2
from (values :rows(2)) as retried
where closed_tasks.id = column1;

-- name: delete_closed
-- Delete closed jobs: their attempts, their payloads, then the tasks.
delete from attempts where task_id in (values :rows(1));
delete from payloads where rowid in (select payload_at from closed_tasks where id in (values :rows(1)));
delete from closed_tasks where id in (values :rows(1));

-- name: retried_by
-- Which tasks repeat closed ones.
select id, retried_by from closed_tasks where id in (values :rows(1)) and retried_by is not null;

-- name: failure_groups
-- The groups from a number on, by looks at the first entry of each, and the newest task of each, without payload and
-- result.
with recursive groups (number) as (
    select (
        select failure_group
        from closed_tasks
        where namespace = :namespace and failure_group >= :first and retried_by is null
        order by failure_group
        limit 1
    )
    union all
    select (
        select failure_group
        from closed_tasks
        where namespace = :namespace and failure_group > number and retried_by is null
        order by failure_group
        limit 1
    )
    from groups
    where number is not null
    limit :most
)
select number, :part(closed_brief)
from groups
cross join closed_tasks
where number is not null and id = (
    select newest.id
    from closed_tasks as newest
    where newest.namespace = :namespace and newest.failure_group = number and newest.retried_by is null
    order by newest.id desc
    limit 1
);

-- name: count_failures
-- How many are in a group, when the first and the last of them closed, and the highest id, of so many of the newest.
select count(*), min(closed_at), max(closed_at), max(id)
from (
    select id, closed_at
    from closed_tasks
    where namespace = :namespace and failure_group = :number and retried_by is null
    order by id desc
    limit :most
);

-- name: find_failures
-- As `find`, of a group.
select :part(closed_brief)
from closed_tasks
where namespace = :namespace and failure_group = :group and retried_by is null and id < :before
    and :part(filter)
    and (:kind is null or kind = :kind)
order by id desc
limit :limit;

-- name: pick_open
-- Open tasks, newest first, and whether each is one of those wanted.
select id, namespace = :namespace and kind = :kind
    and :part(filter)
from tasks
where id < :before
order by id desc
limit :window;

-- name: pick_closed
-- The same of closed tasks; `fresh` ones were not retried yet.
select id, namespace = :namespace and kind = 1
    and :part(filter)
    and (not :fresh or retried_by is null)
from closed_tasks
where id < :before
order by id desc
limit :window;

-- name: pick_dead
-- The same of dead letters of a namespace.
select id, kind = 1
    and :part(filter)
    and (:group is null or failure_group = :group)
    and (:error is null or failure_type = :error)
from closed_tasks
where namespace = :namespace and failure_type is not null and retried_by is null and id < :before
order by id desc
limit :window;

-- name: old_failures
-- Dead letters that closed before a time.
select namespace, type, id
from closed_tasks
where namespace > '' and failure_type is not null and retried_by is null and closed_at < ?
limit ?;
