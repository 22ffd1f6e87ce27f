-- What searches go by. The searches themselves are made of their queries (store/search.py).

-- name: forget_attributes
-- Delete the search attributes of runs.
delete from search_attributes where task_id = any($1::uuid[]);

-- name: put_attributes
-- Write values of search attributes of runs that have none.
insert into search_attributes (task_id, name, value, namespace, closed)
select * from unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::smallint[]);

-- name: attribute_types
-- The search attributes that a namespace has registered.
select name, type from search_attribute_types where namespace = $1 order by name;

-- name: add_attribute_type
-- Register one, unless it is.
insert into search_attribute_types (namespace, name, type) values ($1, $2, $3) on conflict do nothing returning name;

-- name: remove_attribute_type
-- Forget one.
delete from search_attribute_types where namespace = $1 and name = $2 returning name;
