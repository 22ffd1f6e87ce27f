-- name: trim_closed
-- Delete the tasks that closed first, their attempts, the histories of runs and groups, and the inboxes of runs; how many.
with old as materialized (
    select id, kind from closed_tasks where closed_at < $1 order by closed_at limit $2 for update skip locked
),
gone_attempts as (
    delete from attempts using old where attempts.task_id = old.id
),
gone_history as (
    delete from history using old where old.kind in (3, 10) and history.run_id = old.id
),
gone_inbox as (
    delete from inbox using old where old.kind = 3 and inbox.run_id = old.id
),
gone_attributes as (
    delete from search_attributes using old where old.kind = 3 and search_attributes.task_id = old.id
),
gone as (
    delete from closed_tasks using old where closed_tasks.id = old.id returning 1
)
select count(*) from gone;

-- name: trim_keys
-- Of the keys that expired first: let those live on whose task is open, and delete the others; how many. A
-- throttle's is over.
with over as materialized (
    select namespace, app, kind, key, kind <> 'throttle' and exists (select from tasks where tasks.id = keys.task_id) as open
    from keys
    where expires_at <= (select coalesce($2::bigint, now_us()))
    order by expires_at
    limit $1
    for update of keys skip locked
),
kept as (
    update keys set expires_at = coalesce($2::bigint, now_us()) + $3::bigint
    from over
    where over.open
        and keys.namespace = over.namespace and keys.app = over.app and keys.kind = over.kind and keys.key = over.key
),
gone as (
    delete from keys using over
    where not over.open
        and keys.namespace = over.namespace and keys.app = over.app and keys.kind = over.kind and keys.key = over.key
)
select count(*) from over;
