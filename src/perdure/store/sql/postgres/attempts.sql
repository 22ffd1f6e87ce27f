-- name: record
-- New attempts.
insert into attempts (task_id, lease_number, attempt, outcome, worker, started_at, finished_at, failure)
select * from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bytea[]
);

-- name: attempts
-- The recorded attempts of tasks, by task and lease number.
select task_id, lease_number, attempt, outcome, worker, started_at, finished_at, failure
from attempts
where task_id = any($1::uuid[])
order by task_id, lease_number;
