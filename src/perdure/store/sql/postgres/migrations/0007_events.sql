-- Events for the world outside, the webhooks that they are sent to, and the streams of tasks.
--
-- Rows of `outbox` are written by the transaction that they tell of, and carry its number. Transactions commit in
-- another order than they begin, so a reader takes only what lies below the oldest one that still runs, in order of
-- (xid, seq): what comes later then lies behind all that it has seen.

create table outbox (
    namespace text collate "C" not null,
    xid bigint not null default pg_current_xact_id()::text::bigint,
    seq bigint generated always as identity,
    at bigint not null,
    task_id uuid not null,
    attempt integer not null,
    type text not null,
    task_type text not null,
    app text not null,
    queue text not null,
    workflow_id text not null default '',
    failure_code text not null default '',
    failure_type text not null default '',
    primary key (namespace, xid, seq)
) with (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

create table event_feeds (
    namespace text collate "C" primary key,
    recording boolean not null,
    trimmed_xid bigint not null default 0,
    trimmed_seq bigint not null default 0
);

create table webhooks (
    id text collate "C" primary key,
    namespace text collate "C" not null,
    url text not null,
    secret text not null,
    types text not null,
    created_at bigint not null,
    xid bigint not null,
    seq bigint not null,
    disabled_at bigint,
    note text not null default '',
    failures integer not null default 0,
    failing_since bigint,
    retry_at bigint,
    last_error text not null default '',
    sent_at bigint,
    lease_owner bigint,
    lease_until bigint
);

create table dead_letters (
    webhook_id text collate "C" not null,
    xid bigint not null,
    seq bigint not null,
    at bigint not null,
    tries integer not null,
    error text not null,
    body bytea not null,
    primary key (webhook_id, xid, seq)
);

create table streams (
    task_id uuid primary key,
    namespace text collate "C" not null,
    lease_number integer not null,
    lease_chunks integer not null,
    chunks integer not null,
    bytes bigint not null,
    touched_at bigint not null
) with (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
create index streams_touched on streams (touched_at);

create table stream_chunks (
    task_id uuid not null,
    number integer not null,
    attempt integer not null,
    kind smallint not null,
    data bytea not null,
    primary key (task_id, number)
);

-- As in 0002_transactions.sql, but that the end of a job is an event too.
create or replace function complete_v1(
    lease bytea, result bytea, progress bytea default null, checkpoint bytea default null
)
returns void
language plpgsql volatile security definer set search_path = perdure, pg_temp as $$
#variable_conflict use_column
declare
    done_id uuid;
    lease_no integer;
    bits bigint;
    found_task record;
begin
    if lease is null or octet_length(lease) <> 28 then
        perform refuse('PD400', 'lease', '28 bytes', 'lease is not a lease token', 'bytes');
    end if;
    if result is null or octet_length(result) = 0 then
        perform refuse('PD400', 'result', 'MessagePack of payloads', 'result is empty', 'bytes');
    end if;
    perform check_size(complete_v1.result, 'result', 263168);
    perform check_size(complete_v1.progress, 'progress', 16384);
    perform check_size(complete_v1.checkpoint, 'checkpoint', 263168);
    done_id := encode(substr(lease, 1, 16), 'hex')::uuid;
    lease_no := ('x' || encode(substr(lease, 17, 4), 'hex'))::bit(32)::integer;
    bits := ('x' || encode(substr(lease, 21, 8), 'hex'))::bit(64)::bigint;

    -- As the statement `succeed` of tasks.sql, but that it waits for the row.
    with held as materialized (
        select id from tasks
        where id = done_id and state = 2 and kind = 1 and lease_number = lease_no and lease_bits = bits
        for update
    ),
    clock as materialized (
        select count(*), now_us() as now from held
    ),
    ended as (
        delete from tasks
        using held, clock
        where tasks.id = held.id
        returning tasks.*, greatest(clock.now, tasks.updated_at) as now
    )
    insert into closed_tasks (
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, done_number, done_bits, done_state, state, updated_at, closed_at,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result
    )
    select
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, lease_number, lease_bits, 10, 10, now, now,
        attempt + 1, lost_deliveries, coalesce(started_at, attempt_started_at), cancel_requested_at, cancel_reason,
        coalesce(complete_v1.progress, ended.progress), coalesce(complete_v1.checkpoint, ended.checkpoint),
        complete_v1.result
    from ended;

    if not found then
        select state, worker into found_task from tasks where id = done_id;
        if not found then
            select state, worker into found_task from closed_tasks where id = done_id;
        end if;
        perform refuse('PD410', 'lease', '', case
            when found_task.state is null then 'there is no such task any more'
            when found_task.state >= 10 then 'the task is ' || state_name(found_task.state)
            when found_task.state = 2 then 'the task was leased again, to ' || coalesce(found_task.worker, 'a worker')
            else 'the lease ended and the task is ' || state_name(found_task.state)
        end);
    end if;
    insert into outbox (namespace, type, at, task_id, task_type, app, queue, attempt)
    select closed.namespace, 'task.succeeded', closed.closed_at, closed.id, closed.type, closed.app, closed.queue,
        closed.attempt
    from closed_tasks as closed
    where closed.id = done_id and exists (
        select from event_feeds as feed where feed.namespace = closed.namespace and feed.recording
    );
    -- The row is locked until the transaction ends, and what the worker reports about it waits: no client may go to sleep.
    perform set_config('idle_in_transaction_session_timeout', '30s', true)
    where current_setting('idle_in_transaction_session_timeout')::interval not between '1 ms' and '30 s';
    -- A Hint that names a task which has closed.
    perform pg_notify('perdure', encode('\x94c4009091c410'::bytea || uuid_send(done_id) || '\xc2'::bytea, 'base64'));
end
$$;
