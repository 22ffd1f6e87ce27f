-- name: close
-- Move tasks to the closed ones, fenced by the lease; what does not change stays inside the database.
with ending as materialized (
    select * from unnest(
        $1::uuid[], $2::integer[], $3::bigint[], $4::smallint[], $5::bigint[], $6::integer[], $7::integer[],
        $8::bigint[], $9::bigint[], $10::text[], $11::integer[], $12::bigint[], $13::smallint[], $14::bigint[],
        $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[]
    ) as v (
        id, lease_number, lease_bits, state, updated_at, attempt, lost_deliveries, started_at, cancel_requested_at,
        cancel_reason, done_number, done_bits, done_state, closed_at, progress, checkpoint, failure, result
    )
),
ended as (
    delete from tasks using ending
    where tasks.id = ending.id
        and tasks.lease_number = ending.lease_number
        and tasks.lease_bits = ending.lease_bits
    returning
        tasks.id, tasks.created_at, ending.updated_at, ending.closed_at, tasks.lease_length, ending.done_bits,
        tasks.max_attempts, ending.attempt, ending.lost_deliveries, tasks.lease_number, ending.done_number,
        ending.state, tasks.kind, tasks.priority, ending.done_state, tasks.namespace, tasks.app, tasks.type,
        tasks.queue, tasks.lane, tasks.fairness_key, tasks.identity, tasks.run_at, tasks.expires_at, tasks.deadline,
        ending.started_at, tasks.attempt_started_at, ending.cancel_requested_at, tasks.retry_of,
        tasks.idempotency_key, tasks.worker, ending.cancel_reason, tasks.retry_policy, tasks.timeouts,
        tasks.parent_namespace, tasks.parent_workflow_id, tasks.parent_run_id, tasks.parent_event_id,
        tasks.workflow_id, tasks.first_run_id, tasks.original_run_id, tasks.previous_run_id, tasks.root_workflow_id,
        tasks.root_run_id, tasks.reset_run_id, tasks.reset_event_id, tasks.chain_attempt, tasks.cron, tasks.branch,
        tasks.event_count, tasks.history_bytes, tasks.digest, tasks.build, tasks.versioning_behavior, tasks.memo,
        tasks.search_attributes, tasks.user_metadata, tasks.links, tasks.headers, ending.progress, ending.checkpoint,
        ending.failure, tasks.payload, ending.result
)
insert into closed_tasks (
    id, created_at, updated_at, closed_at, lease_length, done_bits, max_attempts, attempt, lost_deliveries,
    lease_number, done_number, state, kind, priority, done_state, namespace, app, type, queue, lane, fairness_key,
    identity, run_at, expires_at, deadline, started_at, attempt_started_at, cancel_requested_at, retry_of,
    idempotency_key, worker, cancel_reason, retry_policy, timeouts, parent_namespace, parent_workflow_id,
    parent_run_id, parent_event_id, workflow_id, first_run_id, original_run_id, previous_run_id, root_workflow_id,
    root_run_id, reset_run_id, reset_event_id, chain_attempt, cron, branch, event_count, history_bytes, digest, build,
    versioning_behavior, memo, search_attributes, user_metadata, links, headers, progress, checkpoint, failure,
    payload, result
)
select * from ended;

-- name: lease
-- Write claims.
update tasks
set place = null, ready_at = null,
    state = v.state, received = v.received, lease_number = v.lease_number, lease_bits = v.lease_bits,
    session = v.session, worker = v.worker, poll = v.poll, attempt_started_at = v.attempt_started_at,
    heartbeat_at = v.heartbeat_at, lease_until = v.lease_until, attempt_deadline = v.attempt_deadline,
    heartbeat_deadline = v.heartbeat_deadline, wake_at = v.wake_at, updated_at = v.updated_at
from unnest(
    $1::uuid[], $2::smallint[], $3::boolean[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[]
) as v (
    id, state, received, lease_number, lease_bits, session, worker, poll, attempt_started_at, heartbeat_at,
    lease_until, attempt_deadline, heartbeat_deadline, wake_at, updated_at
)
where tasks.id = v.id;

-- name: change
-- Write all that a decision may change on an open task.
update tasks
set
    state = v.state, received = v.received, lease_number = v.lease_number, lease_bits = v.lease_bits,
    session = v.session, worker = v.worker, poll = v.poll, attempt_started_at = v.attempt_started_at,
    heartbeat_at = v.heartbeat_at, lease_until = v.lease_until, attempt_deadline = v.attempt_deadline,
    heartbeat_deadline = v.heartbeat_deadline, wake_at = v.wake_at, updated_at = v.updated_at, place = v.place,
    ready_at = v.ready_at, priority = v.priority, attempt = v.attempt, lost_deliveries = v.lost_deliveries,
    started_at = v.started_at, cancel_requested_at = v.cancel_requested_at, cancel_reason = v.cancel_reason,
    cancel_deadline = v.cancel_deadline, progress = v.progress, checkpoint = v.checkpoint, failure = v.failure,
    done_number = v.done_number, done_bits = v.done_bits, done_state = v.done_state
from unnest(
    $1::uuid[], $2::smallint[], $3::boolean[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::smallint[], $19::integer[], $20::integer[], $21::bigint[], $22::bigint[],
    $23::text[], $24::bigint[], $25::bytea[], $26::bytea[], $27::bytea[], $28::integer[], $29::bigint[],
    $30::smallint[]
) as v (
    id, state, received, lease_number, lease_bits, session, worker, poll, attempt_started_at, heartbeat_at,
    lease_until, attempt_deadline, heartbeat_deadline, wake_at, updated_at, place, ready_at, priority, attempt,
    lost_deliveries, started_at, cancel_requested_at, cancel_reason, cancel_deadline, progress, checkpoint, failure,
    done_number, done_bits, done_state
)
where tasks.id = v.id;

-- name: insert
-- New open tasks.
insert into tasks (
    state, kind, received, id, namespace, type, lane, created_at, updated_at, app, queue, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key, place, run_at,
    ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length, lease_until, cancel_deadline,
    wake_at, attempt, lost_deliveries, lease_number, lease_bits, session, worker, poll, started_at,
    attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure, done_number,
    done_bits, done_state
)
select * from unnest(
    $1::smallint[], $2::smallint[], $3::boolean[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[],
    $9::bigint[], $10::text[], $11::text[], $12::bytea[], $13::bytea[], $14::text[], $15::bytea[], $16::bytea[],
    $17::integer[], $18::text[], $19::uuid[], $20::smallint[], $21::text[], $22::bigint[], $23::bigint[],
    $24::bigint[], $25::bigint[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bigint[], $30::bigint[],
    $31::bigint[], $32::bigint[], $33::integer[], $34::integer[], $35::integer[], $36::bigint[], $37::bigint[],
    $38::text[], $39::bigint[], $40::bigint[], $41::bigint[], $42::bigint[], $43::bigint[], $44::text[], $45::bytea[],
    $46::bytea[], $47::bytea[], $48::integer[], $49::bigint[], $50::smallint[]
);
