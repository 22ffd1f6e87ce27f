-- name: trim_closed
-- Delete the tasks that closed first: their attempts and payloads, the histories of runs and groups, the inboxes
-- and search attributes of runs, then the tasks.
delete from attempts
where task_id in (select id from closed_tasks where closed_at < ? order by closed_at, rowid limit ?);
delete from payloads
where rowid in (select payload_at from closed_tasks where closed_at < ? order by closed_at, rowid limit ?);
delete from history
where run_id in (
    select id
    from (select id, kind from closed_tasks where closed_at < ? order by closed_at, rowid limit ?)
    where kind in (3, 10)
);
delete from inbox
where run_id in (
    select id
    from (select id, kind from closed_tasks where closed_at < ? order by closed_at, rowid limit ?)
    where kind = 3
);
delete from search_attributes
where task_id in (
    select id
    from (select id, kind from closed_tasks where closed_at < ? order by closed_at, rowid limit ?)
    where kind = 3
);
delete from closed_tasks
where rowid in (select rowid from closed_tasks where closed_at < ? order by closed_at, rowid limit ?);

-- name: trim_keys
-- Of the keys that expired first: let those live on whose task is open, and delete the others. A throttle's is over.
update keys set expires_at = ?
where (namespace, app, kind, key) in (
    select namespace, app, kind, key from keys where expires_at <= ? order by expires_at limit ?
) and kind <> 'throttle' and exists (select 1 from tasks where tasks.id = keys.task_id);
delete from keys
where (namespace, app, kind, key) in (
    select namespace, app, kind, key from keys where expires_at <= ? order by expires_at limit ?
) and (kind = 'throttle' or not exists (select 1 from tasks where tasks.id = keys.task_id));
