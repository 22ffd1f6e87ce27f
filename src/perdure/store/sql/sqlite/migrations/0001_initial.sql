-- Open tasks, closed tasks, their attempts, keys, worker processes, the pulse.
--
-- Tables of large rows have an integer rowid, because moving such rows inside the tree of a blob key costs double. What
-- a customer gave is written once, to payloads, so that the many changes of a task rewrite small rows; payload_at is its
-- rowid there, null for nothing. Large blobs come last: a statement that does not ask for them then never follows their
-- overflow pages. The columns from parent_namespace to links are those of workflow runs and activities; jobs leave them
-- null. The defaults of tasks are those of a new job.

create table tasks (
    rowid integer primary key,
    id blob not null,
    namespace text not null,
    type text not null,
    state integer not null default 1,
    lane text not null,
    created_at integer not null,
    updated_at integer not null,
    app text not null,
    kind integer not null default 1,
    queue text not null,
    idempotency_key text,
    retry_policy blob,
    timeouts blob,
    max_attempts integer not null,
    identity text not null,
    retry_of blob,
    payload_at integer,
    priority integer not null,
    fairness_key text not null,
    place integer,
    run_at integer,
    ready_at integer,
    expires_at integer,
    attempt_deadline integer,
    deadline integer,
    heartbeat_deadline integer,
    lease_length integer not null,
    lease_until integer,
    cancel_deadline integer,
    wake_at integer,
    attempt integer not null default 0,
    lost_deliveries integer not null default 0,
    lease_number integer not null default 0,
    lease_bits integer not null default 0,
    received integer not null default 0,
    session integer,
    worker text,
    poll integer,
    started_at integer,
    attempt_started_at integer,
    heartbeat_at integer,
    cancel_requested_at integer,
    cancel_reason text,
    done_number integer not null default 0,
    done_bits integer not null default 0,
    done_state integer not null default 0,
    -- the parent of an activity, a timer or a child workflow
    parent_namespace text,
    parent_workflow_id text,
    parent_run_id blob,
    parent_event_id integer,
    parent_close_policy integer,
    group_id blob,
    group_index integer,
    -- an activity
    activity_id text,
    scheduled_event_id integer,
    pause_requested integer,
    reset_requested integer,
    -- a workflow run and its chain
    workflow_id text,
    first_run_id blob,
    original_run_id blob,
    previous_run_id blob,
    root_workflow_id text,
    root_run_id blob,
    reset_run_id blob,
    reset_event_id integer,
    chain_attempt integer,
    chain_deadline integer,
    cron text,
    -- its history and its prepared turn
    branch integer,
    event_count integer,
    history_bytes integer,
    digest integer,
    inbox_count integer,
    turn integer,
    turn_inbox integer,
    turn_prepared_at integer,
    turn_timeout integer,
    sticky_session integer,
    build text,
    versioning_behavior integer,
    paused integer,
    blocked_on text,
    memo blob,
    search_attributes blob,
    user_metadata blob,
    links blob,
    -- what may be large
    progress blob,
    checkpoint blob,
    failure blob
) strict;
create unique index tasks_id on tasks (id);
create index tasks_ready on tasks (lane, priority, place, id) where place is not null;
create index tasks_wake on tasks (wake_at) where wake_at is not null;
create index tasks_session on tasks (session) where session is not null;

create table closed_tasks (
    rowid integer primary key,
    id blob not null,
    namespace text not null,
    type text not null,
    state integer not null,
    lane text not null,
    created_at integer not null,
    updated_at integer not null,
    app text not null,
    kind integer not null,
    queue text not null,
    idempotency_key text,
    retry_policy blob,
    timeouts blob,
    max_attempts integer not null,
    identity text not null,
    retry_of blob,
    payload_at integer,
    priority integer not null,
    fairness_key text not null,
    run_at integer,
    expires_at integer,
    deadline integer,
    lease_length integer not null,
    attempt integer not null,
    lost_deliveries integer not null,
    lease_number integer not null,
    worker text,
    started_at integer,
    attempt_started_at integer,
    cancel_requested_at integer,
    cancel_reason text,
    done_number integer not null,
    done_bits integer not null,
    done_state integer not null,
    closed_at integer not null,
    parent_namespace text,
    parent_workflow_id text,
    parent_run_id blob,
    parent_event_id integer,
    workflow_id text,
    first_run_id blob,
    original_run_id blob,
    previous_run_id blob,
    next_run_id blob,
    root_workflow_id text,
    root_run_id blob,
    reset_run_id blob,
    reset_event_id integer,
    chain_attempt integer,
    cron text,
    branch integer,
    event_count integer,
    history_bytes integer,
    digest integer,
    build text,
    versioning_behavior integer,
    memo blob,
    search_attributes blob,
    user_metadata blob,
    links blob,
    progress blob,
    checkpoint blob,
    failure blob,
    result blob
) strict;
create unique index closed_tasks_id on closed_tasks (id);
create index closed_tasks_closed_at on closed_tasks (closed_at);

create table payloads (
    rowid integer primary key,
    payload blob,
    headers blob
) strict;

create table attempts (
    rowid integer primary key,
    task_id blob not null,
    lease_number integer not null,
    attempt integer not null,
    outcome text not null,
    worker text,
    started_at integer not null,
    finished_at integer not null,
    failure blob
) strict;
create unique index attempts_task on attempts (task_id, lease_number);

create table keys (
    namespace text not null,
    app text not null,
    kind text not null,
    key text not null,
    task_id blob not null,
    digest blob not null,
    expires_at integer not null,
    primary key (namespace, app, kind, key)
) strict, without rowid;
create index keys_expires_at on keys (expires_at);

create table workers (
    incarnation integer primary key,
    epoch integer not null,
    namespace text not null,
    identity text not null,
    queues text not null,
    slots integer not null,
    build text not null,
    started_at integer not null,
    seen_at integer not null,
    ends_at integer
) strict;
create index workers_ends_at on workers (ends_at) where ends_at is not null;

create table pulse (
    one integer primary key check (one = 1),
    alive_at integer not null,
    hold_until integer not null,
    clock integer not null
) strict;
insert into pulse (one, alive_at, hold_until, clock) values (1, 0, 0, 0);

create table api_keys (
    hash blob primary key,
    namespace text not null,
    label text not null,
    created_at integer not null
) strict, without rowid;
