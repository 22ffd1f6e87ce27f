-- name: record
-- New attempts.
insert into attempts (task_id, lease_number, attempt, outcome, worker, started_at, finished_at, failure)
values :rows(8);

-- name: attempts
-- The recorded attempts of tasks, by task and lease number.
select task_id, lease_number, attempt, outcome, worker, started_at, finished_at, failure
from attempts
where task_id in (values :rows(1))
order by task_id, lease_number;
