-- name: reserve_keys
-- Take the keys that are free, in sorted order so that two batches never wait for each other in a ring.
insert into keys (namespace, app, kind, key, task_id, digest, expires_at)
select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::bytea[], $7::bigint[])
order by 1, 2, 3, 4
on conflict do nothing
returning namespace, app, kind, key;

-- name: read_keys
-- Keys by name.
select keys.namespace, keys.app, keys.kind, keys.key, keys.task_id, keys.digest, keys.expires_at
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as wanted (namespace, app, kind, key)
join keys using (namespace, app, kind, key);

-- name: replace_key
-- Give a key to another task, if the one that is thought to hold it still does.
update keys
set task_id = $6, digest = $7, expires_at = $8
where namespace = $1 and app = $2 and kind = $3 and key = $4 and task_id = $5;
