-- name: trim_closed
-- Delete the tasks that closed first: their attempts, then the tasks.
delete from attempts
where task_id in (select id from closed_tasks where closed_at < ? order by closed_at, rowid limit ?);
delete from closed_tasks
where rowid in (select rowid from closed_tasks where closed_at < ? order by closed_at, rowid limit ?);

-- name: trim_keys
-- Delete keys that have expired and whose task is not open.
delete from keys
where (namespace, app, kind, key) in (
    select namespace, app, kind, key
    from keys as expired
    where expires_at <= ? and not exists (select 1 from tasks where tasks.id = expired.task_id)
    order by expires_at
    limit ?
);
