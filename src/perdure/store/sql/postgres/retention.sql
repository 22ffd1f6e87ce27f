-- name: trim_closed
-- Delete the tasks that closed first, and their attempts; how many.
with old as materialized (
    select id from closed_tasks where closed_at < $1 order by closed_at limit $2 for update skip locked
),
gone_attempts as (
    delete from attempts using old where attempts.task_id = old.id
),
gone as (
    delete from closed_tasks using old where closed_tasks.id = old.id returning 1
)
select count(*) from gone;

-- name: trim_keys
-- Delete keys that have expired and whose task is not open; how many.
with over as materialized (
    select namespace, app, kind, key
    from keys
    where expires_at <= (select coalesce($2::bigint, now_us()))
        and not exists (select from tasks where tasks.id = keys.task_id)
    order by expires_at
    limit $1
    for update of keys skip locked
),
gone as (
    delete from keys using over
    where keys.namespace = over.namespace and keys.app = over.app and keys.kind = over.kind and keys.key = over.key
    returning 1
)
select count(*) from gone;
