-- Limits on what runs at once and on how often something starts, and what tasks carry for them.
--
-- A task that a limit refuses leaves the ready index (place becomes null): blocked_on says which limit it was, and
-- blocked_place keeps its place.

alter table tasks
    add column concurrency_key text collate "C",
    add column weight integer not null default 1,
    add column blocked_place bigint;

alter table closed_tasks
    add column concurrency_key text collate "C",
    add column weight integer not null default 1;

create index tasks_blocked on tasks (blocked_on, priority, blocked_place, id) where blocked_on is not null;
-- Together with tasks_session all that is leased: attempts that somebody outside ends have no session.
create index tasks_deferred on tasks (namespace) where state = 2 and session is null;

create table limits (
    namespace text collate "C" not null,
    scope text collate "C" not null,
    name text collate "C" not null,
    max_running integer,
    rate integer,
    per bigint,
    burst integer,
    weight integer,
    paused boolean not null,
    declared boolean not null,
    note text collate "C" not null,
    updated_at bigint not null,
    primary key (namespace, scope, name)
);
comment on table limits is 'What may run at once and how often; servers keep it in memory';

create table buckets (
    subject text collate "C" primary key,
    full_at bigint not null
);
comment on table buckets is 'Token buckets of limits that are not full: when each will be';

-- As in 0003, with the columns of limits behind. The version before reads the views of that.

create view open_whole_v3 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key, place,
    run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length, lease_until,
    cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, null::bigint as closed_at, concurrency_key, weight, blocked_on,
    blocked_place
from tasks;

create view open_brief_v3 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length,
    lease_until, cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session,
    worker, poll, started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, null::bigint as closed_at, concurrency_key, weight, blocked_on,
    blocked_place
from tasks;

create view closed_whole_v3 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key,
    null::bigint as place, run_at, null::bigint as ready_at, expires_at, null::bigint as attempt_deadline, deadline,
    null::bigint as heartbeat_deadline, lease_length, null::bigint as lease_until, null::bigint as cancel_deadline,
    null::bigint as wake_at, attempt, lost_deliveries, lease_number, 0::bigint as lease_bits, false as received,
    null::bigint as session, worker, null::bigint as poll, started_at, attempt_started_at,
    null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure, done_number,
    done_bits, done_state, parent_run_id, parent_event_id, result, closed_at, concurrency_key, weight,
    null::text as blocked_on, null::bigint as blocked_place
from closed_tasks;

create view closed_brief_v3 as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, null::bigint as place, run_at, null::bigint as ready_at, expires_at,
    null::bigint as attempt_deadline, deadline, null::bigint as heartbeat_deadline, lease_length,
    null::bigint as lease_until, null::bigint as cancel_deadline, null::bigint as wake_at, attempt, lost_deliveries,
    lease_number, 0::bigint as lease_bits, false as received, null::bigint as session, worker, null::bigint as poll,
    started_at, attempt_started_at, null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, parent_run_id, parent_event_id,
    null::bytea as result, closed_at, concurrency_key, weight,
    null::text as blocked_on, null::bigint as blocked_place
from closed_tasks;
