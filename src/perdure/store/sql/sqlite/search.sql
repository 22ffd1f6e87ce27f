-- What searches go by. The searches themselves are made of their queries (store/search.py).

-- name: forget_attributes
-- Delete the search attributes of runs.
delete from search_attributes where task_id in (values :rows(1));

-- name: put_attributes
-- Write values of search attributes of runs that have none.
insert into search_attributes (task_id, name, value, namespace, closed) values :rows(5);

-- name: attribute_types
-- The search attributes that a namespace has registered.
select name, type from search_attribute_types where namespace = ? order by name;

-- name: add_attribute_type
-- Register one, unless it is.
insert into search_attribute_types (namespace, name, type) values (?, ?, ?) on conflict do nothing;

-- name: remove_attribute_type
-- Forget one.
delete from search_attribute_types where namespace = ? and name = ?;
