-- name: api_keys
-- All API keys.
select hash, namespace from api_keys;

-- name: add_api_key
-- A new API key, or a new namespace for a known one.
insert into api_keys (hash, namespace, label, created_at)
values (?, ?, ?, ?)
on conflict (hash) do update
set namespace = excluded.namespace, label = excluded.label;

-- name: list_api_keys
-- All API keys with what people want to know of them, oldest first.
select hash, namespace, label, created_at from api_keys order by created_at, hash;

-- name: remove_api_key
-- Forget an API key.
delete from api_keys where hash = ?;
