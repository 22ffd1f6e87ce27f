-- Closed runs that owe compensations (core/compensations.py), and that nobody has resolved.

-- name: mark_owing
-- Write into runs that have closed what they owe.
update closed_tasks set owed = owing.owed
from unnest($1::uuid[], $2::smallint[]) as owing (id, owed)
where closed_tasks.id = owing.id;

-- name: owing
-- What runs owe.
select namespace, type, id, owed from closed_tasks where owed is not null limit $1;

-- name: find_owing
-- Those that pass, newest first.
select * from closed_brief_v3
where id in (
    select id from closed_tasks
    where namespace = $2 and owed is not null and id < $1::uuid
        and :part(filter)
        and ($8::text is null or workflow_id = $8)
    order by id desc
    limit $7
)
order by id desc;
