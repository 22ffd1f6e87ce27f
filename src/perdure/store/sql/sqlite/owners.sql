-- Who looks after queues.

-- name: queue_owners
-- All of them.
select namespace, queue, owner, alert_depth, updated_at from queue_owners order by namespace, queue;

-- name: put_queue_owner
-- Insert or replace one.
insert into queue_owners (namespace, queue, owner, alert_depth, updated_at)
values (?, ?, ?, ?, ?)
on conflict (namespace, queue) do update
set owner = excluded.owner, alert_depth = excluded.alert_depth, updated_at = excluded.updated_at;

-- name: delete_queue_owner
-- Forget one.
delete from queue_owners where namespace = ? and queue = ?;
