-- Tables of open and closed tasks, keys, workers and servers. Times are microseconds since the epoch, states and kinds
-- the numbers of core/states.py, blobs MessagePack. The schema's own name is in the search path of every connection.
--
-- The columns from parent_namespace to links are those of workflow runs and activities; jobs leave them null. Text sorts
-- by bytes (collation C): the order of the other stores, and independent of locales. No foreign keys and no triggers: the
-- engine keeps rows together in its transactions.

create function now_us() returns bigint language sql volatile parallel safe as $$
    select coalesce(
        nullif(current_setting('perdure.now', true), '')::bigint,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint
    )
$$;
comment on function now_us() is 'The one clock: microseconds since the epoch; tests override it by the setting perdure.now';

-- A payload of more than about 2 KB leaves the row, so that the updates of a lease copy 400 bytes and not the payload.
create table tasks (
    id uuid primary key,
    created_at bigint not null,
    updated_at bigint not null,
    lease_length bigint not null,
    lease_bits bigint not null,
    done_bits bigint not null,
    max_attempts integer not null,
    attempt integer not null,
    lost_deliveries integer not null,
    lease_number integer not null,
    done_number integer not null,
    state smallint not null,
    kind smallint not null,
    priority smallint not null,
    done_state smallint not null,
    received boolean not null,
    namespace text collate "C" not null,
    app text collate "C" not null,
    type text collate "C" not null,
    queue text collate "C" not null,
    lane text collate "C" not null,
    fairness_key text collate "C" not null,
    identity text collate "C" not null,
    place bigint,
    run_at bigint,
    ready_at bigint,
    expires_at bigint,
    attempt_deadline bigint,
    deadline bigint,
    heartbeat_deadline bigint,
    lease_until bigint,
    cancel_deadline bigint,
    wake_at bigint,
    session bigint,
    poll bigint,
    started_at bigint,
    attempt_started_at bigint,
    heartbeat_at bigint,
    cancel_requested_at bigint,
    retry_of uuid,
    idempotency_key text collate "C",
    worker text collate "C",
    cancel_reason text collate "C",
    retry_policy bytea,
    timeouts bytea,
    -- the parent of an activity, a timer or a child workflow
    parent_namespace text collate "C",
    parent_workflow_id text collate "C",
    parent_run_id uuid,
    parent_event_id bigint,
    parent_close_policy smallint,
    group_id uuid,
    group_index integer,
    -- an activity
    activity_id text collate "C",
    scheduled_event_id bigint,
    pause_requested smallint,
    reset_requested smallint,
    -- a workflow run and its chain
    workflow_id text collate "C",
    first_run_id uuid,
    original_run_id uuid,
    previous_run_id uuid,
    root_workflow_id text collate "C",
    root_run_id uuid,
    reset_run_id uuid,
    reset_event_id bigint,
    chain_attempt integer,
    chain_deadline bigint,
    cron text collate "C",
    -- its history and its prepared turn
    branch integer,
    event_count bigint,
    history_bytes bigint,
    digest bigint,
    inbox_count bigint,
    turn bigint,
    turn_inbox bigint,
    turn_prepared_at bigint,
    turn_timeout bigint,
    sticky_session bigint,
    build text collate "C",
    versioning_behavior smallint,
    paused smallint,
    blocked_on text collate "C",
    memo bytea,
    search_attributes bytea,
    user_metadata bytea,
    links bytea,
    -- what may be large
    headers bytea,
    progress bytea,
    checkpoint bytea,
    failure bytea,
    payload bytea storage external
) with (
    toast_tuple_target = 128,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
comment on table tasks is 'Open tasks only; one that closes moves to closed_tasks';

create index tasks_ready on tasks (lane, priority, place, id) where place is not null;
create index tasks_wake on tasks (wake_at) where wake_at is not null;
create index tasks_session on tasks (session) where session is not null;

create table closed_tasks (
    id uuid primary key,
    created_at bigint not null,
    updated_at bigint not null,
    closed_at bigint not null,
    lease_length bigint not null,
    done_bits bigint not null,
    max_attempts integer not null,
    attempt integer not null,
    lost_deliveries integer not null,
    lease_number integer not null,
    done_number integer not null,
    state smallint not null,
    kind smallint not null,
    priority smallint not null,
    done_state smallint not null,
    namespace text collate "C" not null,
    app text collate "C" not null,
    type text collate "C" not null,
    queue text collate "C" not null,
    lane text collate "C" not null,
    fairness_key text collate "C" not null,
    identity text collate "C" not null,
    run_at bigint,
    expires_at bigint,
    deadline bigint,
    started_at bigint,
    attempt_started_at bigint,
    cancel_requested_at bigint,
    retry_of uuid,
    idempotency_key text collate "C",
    worker text collate "C",
    cancel_reason text collate "C",
    retry_policy bytea,
    timeouts bytea,
    parent_namespace text collate "C",
    parent_workflow_id text collate "C",
    parent_run_id uuid,
    parent_event_id bigint,
    workflow_id text collate "C",
    first_run_id uuid,
    original_run_id uuid,
    previous_run_id uuid,
    next_run_id uuid,
    root_workflow_id text collate "C",
    root_run_id uuid,
    reset_run_id uuid,
    reset_event_id bigint,
    chain_attempt integer,
    cron text collate "C",
    branch integer,
    event_count bigint,
    history_bytes bigint,
    digest bigint,
    build text collate "C",
    versioning_behavior smallint,
    memo bytea,
    search_attributes bytea,
    user_metadata bytea,
    links bytea,
    headers bytea,
    progress bytea,
    checkpoint bytea,
    failure bytea,
    payload bytea storage external,
    result bytea storage external
) with (
    toast_tuple_target = 128,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
comment on table closed_tasks is 'Closed jobs; never changed, trimmed by closing time';

create index closed_tasks_closed_at on closed_tasks (closed_at);

create table attempts (
    task_id uuid not null,
    lease_number integer not null,
    attempt integer not null,
    started_at bigint not null,
    finished_at bigint not null,
    outcome text collate "C" not null,
    worker text collate "C",
    failure bytea,
    primary key (task_id, lease_number)
);
comment on table attempts is 'Attempts, and undelivered or released leases, that did not end their task';

create table keys (
    namespace text collate "C" not null,
    app text collate "C" not null,
    kind text collate "C" not null,
    key text collate "C" not null,
    task_id uuid not null,
    expires_at bigint not null,
    digest bytea not null,
    -- the key first: it is the one that differs, so a look-up compares one column and not four
    primary key (key, namespace, app, kind)
) with (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
comment on table keys is 'Reserved names: idempotency keys and the request ids of operators';

create index keys_expires_at on keys (expires_at);

create table workers (
    incarnation bigint primary key,
    epoch bigint not null,
    slots integer not null,
    started_at bigint not null,
    seen_at bigint not null,
    ends_at bigint,
    namespace text collate "C" not null,
    identity text collate "C" not null,
    queues text collate "C" not null,
    build text collate "C" not null
);
comment on table workers is 'Registered worker processes';

create index workers_ends_at on workers (ends_at) where ends_at is not null;

create table pulse (
    one smallint primary key check (one = 1),
    alive_at bigint not null,
    hold_until bigint not null
);
comment on table pulse is 'When servers last knew the database to be reachable';
insert into pulse (one, alive_at, hold_until) values (1, 0, 0);

create table api_keys (
    hash bytea primary key,
    namespace text collate "C" not null,
    label text collate "C" not null,
    created_at bigint not null
);

-- A task as statements answer it: the fields of core/model.py Task in their order, so that a row becomes a Task without
-- a look-up by name. "Brief" leaves payload, headers and result out.
create view open_whole as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key, place,
    run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length, lease_until,
    cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, null::bytea as result, null::bigint as closed_at
from tasks;

create view open_brief as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline, lease_length,
    lease_until, cancel_deadline, wake_at, attempt, lost_deliveries, lease_number, lease_bits, received, session,
    worker, poll, started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, null::bytea as result, null::bigint as closed_at
from tasks;

create view closed_whole as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, payload, headers,
    idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority, fairness_key,
    null::bigint as place, run_at, null::bigint as ready_at, expires_at, null::bigint as attempt_deadline, deadline,
    null::bigint as heartbeat_deadline, lease_length, null::bigint as lease_until, null::bigint as cancel_deadline,
    null::bigint as wake_at, attempt, lost_deliveries, lease_number, 0::bigint as lease_bits, false as received,
    null::bigint as session, worker, null::bigint as poll, started_at, attempt_started_at,
    null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure, done_number,
    done_bits, done_state, result, closed_at
from closed_tasks;

create view closed_brief as
select
    id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, 0 as rowid, null::bytea as payload,
    null::bytea as headers, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of, priority,
    fairness_key, null::bigint as place, run_at, null::bigint as ready_at, expires_at,
    null::bigint as attempt_deadline, deadline, null::bigint as heartbeat_deadline, lease_length,
    null::bigint as lease_until, null::bigint as cancel_deadline, null::bigint as wake_at, attempt, lost_deliveries,
    lease_number, 0::bigint as lease_bits, false as received, null::bigint as session, worker, null::bigint as poll,
    started_at, attempt_started_at, null::bigint as heartbeat_at, cancel_requested_at, cancel_reason, progress,
    checkpoint, failure, done_number, done_bits, done_state, null::bytea as result, closed_at
from closed_tasks;
