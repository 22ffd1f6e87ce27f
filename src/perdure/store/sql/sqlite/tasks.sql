-- Select lists follow the fields of core/model.py Task; null stands for a column that a verb leaves out.

-- part: open_brief
-- Open tasks without payload and headers.
id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, rowid,
    null, null, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of,
    priority, fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline,
    lease_length, lease_until, cancel_deadline, wake_at,
    attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, null, null,
    concurrency_key, weight, blocked_on, blocked_place

-- part: open_whole
-- Open tasks, joined with their payloads.
id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, tasks.rowid,
    payload, headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of,
    priority, fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline,
    lease_length, lease_until, cancel_deadline, wake_at,
    attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, null, null,
    concurrency_key, weight, blocked_on, blocked_place

-- part: closed_brief
-- Closed tasks without payload, headers and result.
id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0,
    null, null, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of,
    priority, fairness_key, null, run_at, null, expires_at, null, deadline, null,
    lease_length, null, null, null,
    attempt, lost_deliveries, lease_number, 0, 0, null, worker, null,
    started_at, attempt_started_at, null, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, null, closed_at,
    concurrency_key, weight, null, null

-- part: closed_whole
-- Closed tasks, joined with their payloads.
id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0,
    payload, headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of,
    priority, fairness_key, null, run_at, null, expires_at, null, deadline, null,
    lease_length, null, null, null,
    attempt, lost_deliveries, lease_number, 0, 0, null, worker, null,
    started_at, attempt_started_at, null, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, result, closed_at,
    concurrency_key, weight, null, null

-- part: filter
-- What tasks must be to be listed; null does not narrow it.
(:state is null or state = :state)
    and (:queue is null or queue = :queue)
    and (:type is null or type = :type)
    and (:since is null or created_at >= :since)

-- name: lock
-- Open tasks by id, without payload and headers.
select :part(open_brief)
from tasks
where id in (values :rows(1));

-- name: closed
-- Which of these ids closed tasks have.
select id from closed_tasks where id in (values :rows(1));

-- name: trace
-- Tasks by id, open or closed, without payload and result.
with wanted (id) as (values :rows(1))
select :part(open_brief)
from tasks
where id in (select wanted.id from wanted)
union all
select :part(closed_brief)
from closed_tasks
where id in (select wanted.id from wanted);

-- name: read
-- Tasks by id, open or closed, whole.
with wanted (id) as (values :rows(1))
select :part(open_whole)
from tasks left join payloads on payloads.rowid = payload_at
where id in (select wanted.id from wanted)
union all
select :part(closed_whole)
from closed_tasks left join payloads on payloads.rowid = payload_at
where id in (select wanted.id from wanted);

-- name: find
-- Open and closed tasks that pass a filter, newest id first, without payload and result.
select :part(open_brief)
from tasks
where id < :before and namespace = :namespace
    and :part(filter)
    and (:kind is null or kind = :kind)
    and (:without_type is null or type <> :without_type)
union all
select :part(closed_brief)
from closed_tasks
where id < :before and namespace = :namespace
    and :part(filter)
    and (:kind is null or kind = :kind)
    and (:without_type is null or type <> :without_type)
    and not :open
order by 1 desc
limit :limit;

-- name: claim
-- Ready tasks of one lane from behind a place on, whole, in queue order.
select :part(open_whole)
from tasks left join payloads on payloads.rowid = payload_at
where lane = ? and place is not null and (priority, place, id) > (?, ?, ?)
order by priority, place, id
limit ?;

-- name: due
-- Tasks whose alarm has gone off, oldest first, without payload.
select :part(open_brief)
from tasks
where wake_at > ? and wake_at <= ?
order by wake_at
limit ?;

-- name: leased_by
-- Tasks that a worker process holds, whole.
select :part(open_whole)
from tasks left join payloads on payloads.rowid = payload_at
where session = ?
order by tasks.rowid
limit ?;

-- name: leased_by_poll
-- Tasks that one poll of a worker process got and whose receipt was not acknowledged, whole.
select :part(open_whole)
from tasks left join payloads on payloads.rowid = payload_at
where session = ? and poll = ? and not received
order by tasks.rowid
limit ?;

-- name: held
-- Tasks that a worker process holds, without payload and headers.
select :part(open_brief)
from tasks
where session = ?
order by rowid
limit ?;

-- name: next_alarm
-- When the next alarm goes off.
select min(wake_at) from tasks where wake_at > ?;

-- name: places
-- The lowest and the highest place of each lane and priority, by looks at both ends of each range of the index.
select lanes.column1, (
    select place
    from tasks
    where lane = lanes.column1 and priority = priorities.column1 and place is not null
    order by place
    limit 1
) as lowest, (
    select place
    from tasks
    where lane = lanes.column1 and priority = priorities.column1 and place is not null
    order by place desc
    limit 1
) as highest
from (values :rows(1)) as lanes, (values (1), (2), (3), (4), (5)) as priorities;

-- name: beat
-- Extend leases, fenced by the whole lease; what changes is decide.beat.
update tasks
set updated_at = max(updated_at, beats.now),
    received = 1,
    lost_deliveries = 0,
    lease_until = case when lease_until is not null then max(updated_at, beats.now) + lease_length end,
    heartbeat_deadline = coalesce(
        heartbeat_deadline + max(updated_at, beats.now) - heartbeat_at, heartbeat_deadline
    ),
    heartbeat_at = max(updated_at, beats.now),
    started_at = coalesce(started_at, attempt_started_at),
    progress = coalesce(beats.progress, tasks.progress),
    checkpoint = coalesce(beats.checkpoint, tasks.checkpoint)
from (
    select column1 as id, column2 as lease_number, column3 as lease_bits, column4 as now,
        column5 as progress, column6 as checkpoint
    from (values :rows(6))
) as beats
where tasks.id = beats.id
    and tasks.state = 2
    and tasks.lease_number = beats.lease_number
    and tasks.lease_bits = beats.lease_bits
returning id, cancel_requested_at is not null;

-- name: succeed
-- Close leased jobs that succeeded, fenced by the whole lease; what changes is decide.succeed. Then, which
-- they were (in both tables now), for when not all matched; and the delete.
insert into closed_tasks (
    updated_at, closed_at, attempt, started_at, done_number, done_bits, done_state, state, progress, checkpoint, result,
    id, namespace, type, lane, created_at, app, kind, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, payload_at, priority, fairness_key, run_at, expires_at, deadline, lease_length,
    lost_deliveries, lease_number, worker, attempt_started_at, cancel_requested_at, cancel_reason, concurrency_key,
    weight
)
select
    max(updated_at, column4), max(updated_at, column4), attempt + 1, coalesce(started_at, attempt_started_at),
    lease_number, lease_bits, 10, 10, coalesce(column5, progress), coalesce(column6, checkpoint), column7,
    id, namespace, type, lane, created_at, app, kind, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, payload_at, priority, fairness_key, run_at, expires_at, deadline, lease_length,
    lost_deliveries, lease_number, worker, attempt_started_at, cancel_requested_at, cancel_reason, concurrency_key,
    weight
from (values :rows(7)) as done
cross join tasks
where tasks.id = column1 and lease_number = column2 and lease_bits = column3 and state = 2 and kind = 1;
select tasks.id from tasks join closed_tasks using (id) where tasks.id in (values :rows(1));
delete from tasks where id in (values :rows(1));

-- name: close
-- Move tasks to the closed ones: a copy that is fenced by the lease, of jobs that simply succeeded or of any tasks;
-- then, when all rows matched, the delete.
insert into closed_tasks (
    updated_at, attempt, lost_deliveries, started_at, done_number, done_bits, done_state, closed_at, result, state,
    kind,
    id, namespace, type, lane, created_at, app, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, priority, fairness_key, run_at, expires_at, deadline, lease_length, lease_number, worker,
    attempt_started_at, payload_at, concurrency_key, weight
)
select
    column4, column5, column6, column7, column8, column9, column10, column11, column12, 10, 1,
    id, namespace, type, lane, created_at, app, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, priority, fairness_key, run_at, expires_at, deadline, lease_length, lease_number, worker,
    attempt_started_at, payload_at, concurrency_key, weight
from (values :rows(12)) as closing
cross join tasks
where tasks.rowid = column1 and tasks.lease_number = column2 and tasks.lease_bits = column3;
insert into closed_tasks (
    updated_at, attempt, lost_deliveries, started_at, done_number, done_bits, done_state, closed_at, result, state,
    kind, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    id, namespace, type, lane, created_at, app, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, priority, fairness_key, run_at, expires_at, deadline, lease_length, lease_number, worker,
    attempt_started_at, payload_at, concurrency_key, weight,
    parent_namespace, parent_workflow_id, parent_run_id, parent_event_id, workflow_id, first_run_id,
    original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id, reset_event_id, chain_attempt,
    chain_deadline, parent_close_policy, turn_timeout,
    cron, branch, event_count, history_bytes, digest, build, versioning_behavior, memo, search_attributes,
    user_metadata, links
)
select
    column4, column5, column6, column7, column8, column9, column10, column11, column12, column13, column14,
    column15, column16, column17, column18, column19,
    id, namespace, type, lane, created_at, app, queue, idempotency_key, retry_policy, timeouts, max_attempts,
    identity, retry_of, priority, fairness_key, run_at, expires_at, deadline, lease_length, lease_number, worker,
    attempt_started_at, payload_at, concurrency_key, weight,
    parent_namespace, parent_workflow_id, parent_run_id, parent_event_id, workflow_id, first_run_id,
    original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id, reset_event_id, chain_attempt,
    chain_deadline, parent_close_policy, turn_timeout,
    cron, branch, event_count, history_bytes, digest, build, versioning_behavior, memo, search_attributes,
    user_metadata, links
from (values :rows(19)) as closing
cross join tasks
where tasks.rowid = column1 and tasks.lease_number = column2 and tasks.lease_bits = column3;
delete from tasks where rowid in (values :rows(1));

-- name: lease
-- Write claims: of tasks without deadlines, or any.
update tasks
set state = 2, received = 0, place = null, ready_at = null, attempt_deadline = null, heartbeat_deadline = null,
    lease_number = column2, lease_bits = column3, session = column4, worker = column5, poll = column6,
    attempt_started_at = column7, heartbeat_at = column8, lease_until = column9, wake_at = column10,
    updated_at = column11
from (values :rows(11)) as leases
where tasks.rowid = column1;
update tasks
set place = null, ready_at = null,
    lease_number = column2, lease_bits = column3, session = column4, worker = column5, poll = column6,
    attempt_started_at = column7, heartbeat_at = column8, lease_until = column9, wake_at = column10,
    updated_at = column11, state = column12, received = column13, attempt_deadline = column14,
    heartbeat_deadline = column15
from (values :rows(15)) as leases
where tasks.rowid = column1;

-- name: take
-- Write claims of one poll (session, worker, poll, now), of tasks without time-outs; what changes is decide.claim.
update tasks
set state = 2, received = 0, place = null, ready_at = null, lease_number = lease_number + 1, lease_bits = column2,
    session = ?1, worker = ?2, poll = ?3, attempt_started_at = max(updated_at, ?4), heartbeat_at = max(updated_at, ?4),
    lease_until = max(updated_at, ?4) + min(10000000, lease_length),
    wake_at = min(max(updated_at, ?4) + min(10000000, lease_length), coalesce(deadline, 9223372036854775807)),
    updated_at = max(updated_at, ?4)
from (values :rows(2)) as taken
where tasks.rowid = column1;

-- name: change
-- Write all that a decision may change on an open task.
update tasks
set state = column1, received = column2, lease_number = column4, lease_bits = column5, session = column6,
    worker = column7, poll = column8, attempt_started_at = column9, heartbeat_at = column10, lease_until = column11,
    attempt_deadline = column12, heartbeat_deadline = column13, wake_at = column14, updated_at = column15,
    place = column16, ready_at = column17, priority = column18, attempt = column19, lost_deliveries = column20,
    started_at = column21, cancel_requested_at = column22, cancel_reason = column23, cancel_deadline = column24,
    progress = column25, checkpoint = column26, failure = column27, done_number = column28, done_bits = column29,
    done_state = column30, blocked_on = column31, blocked_place = column32
from (values :rows(32)) as changes
where tasks.rowid = column3;

-- name: insert
-- The next number for payloads; the payloads; new open tasks: jobs for now, which leave the other columns to their
-- defaults, or any. A number that a task refers to is below the highest one, because payloads go with their task only.
select coalesce(max(rowid), 0) + 1 from payloads;
insert into payloads (rowid, payload, headers) values :rows(3);
insert into tasks (
    payload_at, id, namespace, type, lane, created_at, updated_at, app, queue, idempotency_key, max_attempts,
    identity, priority, fairness_key, place, lease_length
)
values :rows(16);
insert into tasks (
    payload_at, id, namespace, type, lane, created_at, updated_at, app, queue, idempotency_key, max_attempts,
    identity, priority, fairness_key, place, lease_length, state, kind, retry_policy, timeouts, retry_of, run_at,
    ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_until, cancel_deadline, wake_at,
    attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll, started_at,
    attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, concurrency_key, weight, blocked_on,
    blocked_place
)
values :rows(55);
