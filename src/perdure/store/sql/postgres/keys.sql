-- name: reserve_keys
-- Take the keys that are free, in the order given; how many, and which if those are not all. An application's
-- transaction may hold one of them for as long as it likes: whoever is waited for here has a fifth of a second.
with patience as materialized (
    select set_config('lock_timeout', '200ms', true)
),
taken as (
    insert into keys (key, task_id, digest, expires_at, namespace, app, kind)
    select v.key, v.task_id, v.digest, v.expires_at, ($6::text[])[v.class], ($7::text[])[v.class], ($8::text[])[v.class]
    from unnest($1::text[], $2::uuid[], $3::bytea[], $4::bigint[], $5::integer[])
        as v (key, task_id, digest, expires_at, class), patience
    on conflict do nothing
    returning namespace, app, kind, key
),
counted as materialized (
    select count(*) as number from taken
)
select counted.number, names.*
from counted
left join lateral (
    select array_agg(namespace), array_agg(app), array_agg(kind), array_agg(key)
    from taken
    where counted.number < cardinality($1::text[])
) as names on true;

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

-- name: free_keys
-- Delete keys.
delete from keys
using unnest($1::text[], $2::text[], $3::text[], $4::text[]) as freed (namespace, app, kind, key)
where keys.namespace = freed.namespace
    and keys.app = freed.app
    and keys.kind = freed.kind
    and keys.key = freed.key;
