-- name: reserve_keys
-- Take the keys that are free. The second statement, for when that were not all, also returns their names.
insert into keys (namespace, app, kind, key, task_id, digest, expires_at)
values :rows(7)
on conflict do nothing;
insert into keys (namespace, app, kind, key, task_id, digest, expires_at)
values :rows(7)
on conflict do nothing
returning namespace, app, kind, key;

-- name: read_keys
-- Keys by name.
select keys.namespace, keys.app, keys.kind, keys.key, task_id, digest, expires_at
from (values :rows(4)) as wanted
cross join keys
where keys.namespace = column1 and keys.app = column2 and keys.kind = column3 and keys.key = column4;

-- name: replace_key
-- Give a key to another task, if the one that is thought to hold it still does.
update keys
set task_id = ?, digest = ?, expires_at = ?
where namespace = ? and app = ? and kind = ? and key = ? and task_id = ?;

-- name: free_keys
-- Delete a key.
delete from keys where namespace = ? and app = ? and kind = ? and key = ?;
