-- Workflow runs: their histories, their inboxes, and the columns that the first tables lack.
--
-- A page of a history is written once and goes with its run; a message lives until a turn has seen it. Pages are
-- compressed before they come here.

create table history (
    run_id uuid not null,
    first bigint not null,
    count integer not null,
    data bytea storage external not null,
    primary key (run_id, first)
) with (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
comment on table history is 'Events of workflow runs, a row an append';

create table inbox (
    run_id uuid not null,
    seq bigint not null,
    at bigint not null,
    kind smallint not null,
    body bytea storage external not null,
    primary key (run_id, seq)
) with (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
comment on table inbox is 'Messages to workflow runs that no turn has seen yet';

alter table tasks
    add column inbox_taken bigint,
    add column turn_scheduled_at bigint,
    add column turn_written bigint,
    add column failures integer,
    add column children integer;

alter table closed_tasks
    add column parent_close_policy smallint,
    add column chain_deadline bigint,
    add column turn_timeout bigint;

create index tasks_parent on tasks (parent_run_id, id) where parent_run_id is not null;
create index tasks_workflow on tasks (namespace, workflow_id, id) where workflow_id is not null;
create index closed_tasks_workflow on closed_tasks (namespace, workflow_id, id) where workflow_id is not null;

-- A task as statements answer it: the fields of core/model.py Task in their order, so that a row becomes a Task without
-- a look-up by name. "Brief" leaves payload, headers and result out. The version before reads the views of 0001.
create view open_whole_v2 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key, place,
    run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length, lease_until,
    cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, null::bigint as closed_at
from tasks;

create view open_brief_v2 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length,
    lease_until, cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session,
    worker, poll, started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, null::bigint as closed_at
from tasks;

create view closed_whole_v2 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key,
    null::bigint as place, run_at, null::bigint as ready_at, expires_at, null::bigint as attempt_deadline, deadline,
    null::bigint as heartbeat_deadline, lease_length, null::bigint as lease_until, null::bigint as cancel_deadline,
    null::bigint as wake_at, attempt, lost_deliveries, lease_number, 0::bigint as lease_bits, false as received,
    null::bigint as session, worker, null::bigint as poll, started_at, attempt_started_at,
    null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure, done_number,
    done_bits, done_state, parent_run_id, parent_event_id, result, closed_at
from closed_tasks;

create view closed_brief_v2 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, null::bigint as place, run_at, null::bigint as ready_at, expires_at,
    null::bigint as attempt_deadline, deadline, null::bigint as heartbeat_deadline, lease_length,
    null::bigint as lease_until, null::bigint as cancel_deadline, null::bigint as wake_at, attempt, lost_deliveries,
    lease_number, 0::bigint as lease_bits, false as received, null::bigint as session, worker, null::bigint as poll,
    started_at, attempt_started_at, null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, closed_at
from closed_tasks;

-- The fields of core/run.py Run in their order; a closed run has no turn, no inbox and no children. Rows that are no run
-- are among them, without a workflow id: if the views left them out, a plan could go by the index of workflow ids and
-- read all of it to find a run by its own id.
create view open_runs as
select
    id, workflow_id, first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id,
    reset_event_id, parent_namespace, parent_workflow_id, parent_close_policy, chain_attempt, chain_deadline, cron,
    branch, event_count, history_bytes, inbox_count, inbox_taken, turn_inbox, turn_prepared_at, turn_scheduled_at,
    turn_written, turn_timeout, failures, sticky_session, children, build, versioning_behavior, paused = 1 as paused,
    memo, search_attributes
from tasks;

create view closed_runs as
select
    id, workflow_id, first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id,
    reset_event_id, parent_namespace, parent_workflow_id, parent_close_policy, chain_attempt, chain_deadline, cron,
    branch, event_count, history_bytes, 0::bigint as inbox_count, 0::bigint as inbox_taken, 0::bigint as turn_inbox,
    null::bigint as turn_prepared_at, 0::bigint as turn_scheduled_at, 0::bigint as turn_written, turn_timeout,
    0 as failures, null::bigint as sticky_session, 0 as children, build, versioning_behavior, false as paused,
    memo, search_attributes
from closed_tasks;
