-- Closed runs that owe compensations (core/compensations.py), and that nobody has resolved.

-- name: mark_owing
-- Write into runs that have closed what they owe.
update closed_tasks set owed = column2
from (values :rows(2)) as owing
where closed_tasks.id = column1;

-- name: owing
-- What runs owe.
select namespace, type, id, owed from closed_tasks where namespace > '' and owed is not null limit ?;

-- name: find_owing
-- The ids of those that pass, newest first.
select id
from closed_tasks
where namespace = :namespace and owed is not null and id < :before
    and :part(filter)
    and (:workflow_id is null or workflow_id = :workflow_id)
order by id desc
limit :limit;
