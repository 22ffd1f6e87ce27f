-- Workflow runs: their columns in the tables of tasks, their histories, and their inboxes. Messages and workflow columns
-- are read and written under the lock of the run's row, so none of these statements waits.

-- name: runs
-- The workflow columns of open runs.
select * from open_runs where id = any($1::uuid[]);

-- name: run_rows
-- The workflow columns of runs, open or closed; one snapshot.
select * from open_runs where id = any($1::uuid[])
union all
select * from closed_runs where id = any($1::uuid[]);

-- name: put_runs
-- Write the workflow columns of open tasks.
update tasks
set workflow_id = v.workflow_id, first_run_id = v.first_run_id, original_run_id = v.original_run_id,
    root_workflow_id = v.root_workflow_id, root_run_id = v.root_run_id, event_count = v.event_count,
    history_bytes = v.history_bytes, turn_prepared_at = v.turn_prepared_at, turn_scheduled_at = v.turn_scheduled_at,
    previous_run_id = ($12::uuid[])[v.class], reset_run_id = ($13::uuid[])[v.class],
    reset_event_id = ($14::bigint[])[v.class], parent_namespace = ($15::text[])[v.class],
    parent_workflow_id = ($16::text[])[v.class], parent_close_policy = ($17::smallint[])[v.class],
    chain_attempt = ($18::integer[])[v.class], chain_deadline = ($19::bigint[])[v.class],
    cron = ($20::text[])[v.class], branch = ($21::integer[])[v.class], inbox_count = ($22::bigint[])[v.class],
    inbox_taken = ($23::bigint[])[v.class], turn_inbox = ($24::bigint[])[v.class],
    turn_written = ($25::bigint[])[v.class], turn_timeout = ($26::bigint[])[v.class],
    failures = ($27::integer[])[v.class], sticky_session = ($28::bigint[])[v.class],
    children = ($29::integer[])[v.class], build = ($30::text[])[v.class],
    versioning_behavior = ($31::smallint[])[v.class], paused = ($32::smallint[])[v.class],
    memo = ($33::bytea[])[v.class], search_attributes = ($34::bytea[])[v.class]
from unnest(
    $1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::uuid[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::integer[]
) as v (
    id, workflow_id, first_run_id, original_run_id, root_workflow_id, root_run_id, event_count, history_bytes,
    turn_prepared_at, turn_scheduled_at, class
)
where tasks.id = v.id;

-- name: advance
-- Runs go on by an append of steps, fenced by the lease and by what it says of the run, except of rows held elsewhere;
-- what changes is core/advance.py.
with held as materialized (
    select tasks.id, tasks.inbox_count > tasks.turn_inbox as waiting, steps.at, steps.first, steps.count, steps.data
    from unnest(
        $1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::integer[],
        $9::bytea[]
    ) as steps (id, lease_number, lease_bits, completed, worker, at, first, count, data)
    join tasks on tasks.id = steps.id
    where tasks.state = 2 and tasks.lease_number = steps.lease_number and tasks.lease_bits = steps.lease_bits
        and tasks.worker = steps.worker and tasks.updated_at <= steps.at and tasks.turn_prepared_at <= steps.at
        and tasks.turn_written = steps.completed and tasks.event_count = steps.first - 1
    for update of tasks skip locked
),
advanced as (
    update tasks
    set event_count = tasks.event_count + held.count, history_bytes = tasks.history_bytes + length(held.data),
        turn_prepared_at = held.at
    from held
    where tasks.id = held.id
),
appended as (
    insert into history (run_id, first, count, data) select id, first, count, data from held
)
select id, waiting, now_us(), pg_current_xact_id()::text::bigint from held;

-- name: children
-- Open tasks whose parent is a run, from behind an id on, in order of id, without payload and headers; those that are
-- held elsewhere are skipped. With them, whether there were none such, as far as these go.
with locked as materialized (
    select * from open_brief_v3 where parent_run_id = $1 and id > $3 order by id limit $2 for update skip locked
),
seen as (
    select count(*) as number
    from tasks
    where parent_run_id = $1 and id > $3
        and id <= coalesce(
            (select id from locked order by id offset $2 - 1), 'ffffffff-ffff-ffff-ffff-ffffffffffff'
        )
)
select locked.*, seen.number = clock.number, clock.now, clock.xid
from (select count(*) as number, now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
cross join seen
left join locked on true;

-- name: open_children
-- The first of them, without locks.
select * from open_brief_v3 where parent_run_id = $1 order by id limit $2;

-- name: delete
-- Delete open tasks that leave no closed row, fenced by the lease, and their attempts; how many.
with gone as (
    delete from tasks
    using unnest($1::uuid[], $2::integer[], $3::bigint[]) as v (id, lease_number, lease_bits)
    where tasks.id = v.id and tasks.lease_number = v.lease_number and tasks.lease_bits = v.lease_bits
    returning tasks.id
),
gone_attempts as (
    delete from attempts using gone where attempts.task_id = gone.id
)
select count(*) from gone;

-- name: close_runs
-- As `close`, for tasks of every kind: with the columns of workflow runs and of what belongs to one.
with ended as (
    delete from tasks
    using unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bytea[], $6::integer[])
        as v (id, lease_number, lease_bits, done_bits, result, class)
    where tasks.id = v.id and tasks.lease_number = v.lease_number and tasks.lease_bits = v.lease_bits
    returning
        tasks.id, tasks.created_at, tasks.lease_length, tasks.max_attempts, tasks.lease_number, tasks.kind,
        tasks.priority, tasks.namespace, tasks.app, tasks.type, tasks.queue, tasks.lane, tasks.fairness_key,
        tasks.identity, tasks.run_at, tasks.expires_at, tasks.deadline, tasks.attempt_started_at, tasks.retry_of,
        tasks.idempotency_key, tasks.worker, tasks.retry_policy, tasks.timeouts, tasks.headers, tasks.payload,
        tasks.parent_namespace, tasks.parent_workflow_id, tasks.parent_run_id, tasks.parent_event_id,
        tasks.parent_close_policy, tasks.workflow_id, tasks.first_run_id, tasks.original_run_id, tasks.previous_run_id,
        tasks.root_workflow_id, tasks.root_run_id, tasks.reset_run_id, tasks.reset_event_id, tasks.chain_attempt,
        tasks.chain_deadline, tasks.cron, tasks.branch, tasks.event_count, tasks.history_bytes, tasks.turn_timeout,
        tasks.build, tasks.versioning_behavior, tasks.memo, tasks.search_attributes, tasks.concurrency_key,
        tasks.weight, v.done_bits, v.result, v.class
)
insert into closed_tasks (
    id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
    fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
    retry_policy, timeouts, headers, payload,
    parent_namespace, parent_workflow_id, parent_run_id, parent_event_id, parent_close_policy, workflow_id,
    first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id, reset_event_id,
    chain_attempt, chain_deadline, cron, branch, event_count, history_bytes, turn_timeout, build, versioning_behavior,
    memo, search_attributes, concurrency_key, weight, done_bits, result,
    state, updated_at, attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, done_number,
    done_state, closed_at, progress, checkpoint, failure
)
select
    id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
    fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
    retry_policy, timeouts, headers, payload,
    parent_namespace, parent_workflow_id, parent_run_id, parent_event_id, parent_close_policy, workflow_id,
    first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id, reset_event_id,
    chain_attempt, chain_deadline, cron, branch, event_count, history_bytes, turn_timeout, build, versioning_behavior,
    memo, search_attributes, concurrency_key, weight, done_bits, result,
    ($7::smallint[])[class], ($8::bigint[])[class], ($9::integer[])[class], ($10::integer[])[class],
    ($11::bigint[])[class], ($12::bigint[])[class], ($13::text[])[class], ($14::integer[])[class],
    ($15::smallint[])[class], ($16::bigint[])[class], ($17::bytea[])[class], ($18::bytea[])[class],
    ($19::bytea[])[class]
from ended;

-- name: copy_pages
-- Pages of a history that hold nothing above a number, once more for another row.
insert into history (run_id, first, count, data)
select copied.target_id, history.first, history.count, history.data
from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as copied (source_id, target_id, last)
join history on history.run_id = copied.source_id and history.first + history.count - 1 <= copied.last;

-- name: histories
-- Pages of histories in order, at most so many of each, from the one that holds the event after a number on; of each as
-- many as begin within so many bytes.
select page.run_id, page.first, page.count, page.data
from unnest($1::uuid[], $2::bigint[]) as wanted (run_id, after)
cross join lateral (
    select few.*, sum(length(few.data)) over (order by few.first) - length(few.data) as before
    from (
        select *
        from history
        where history.run_id = wanted.run_id
            and history.first >= coalesce(
                (
                    select max(before.first)
                    from history as before
                    where before.run_id = wanted.run_id and before.first <= wanted.after + 1
                ), 0
            )
            and history.first + history.count > wanted.after + 1
        order by history.first
        limit $3
    ) as few
) as page
where $4::bigint is null or page.before < $4
order by page.run_id, page.first;

-- name: inbox
-- Messages to runs behind a number, in order of arrival.
select inbox.run_id, inbox.seq, inbox.kind, inbox.at, inbox.body
from unnest($1::uuid[], $2::bigint[]) as wanted (run_id, after)
join inbox on inbox.run_id = wanted.run_id and inbox.seq > wanted.after
order by inbox.run_id, inbox.seq;

-- name: inbox_start
-- The same, of each run as many as begin within so many bytes.
select run_id, seq, kind, at, body
from (
    select inbox.*, sum(length(inbox.body)) over (partition by inbox.run_id order by inbox.seq) - length(inbox.body) as before
    from unnest($1::uuid[], $2::bigint[]) as wanted (run_id, after)
    join inbox on inbox.run_id = wanted.run_id and inbox.seq > wanted.after
) as measured
where before < $3
order by run_id, seq;

-- name: messages
-- Messages to a run, in order of arrival.
select run_id, seq, kind, at, body from inbox where run_id = $1 order by seq limit $2;

-- name: take_messages
-- Delete the messages to runs up to a number.
delete from inbox
using unnest($1::uuid[], $2::bigint[]) as taken (run_id, until)
where inbox.run_id = taken.run_id and inbox.seq <= taken.until;

-- name: find_runs
-- As `find`, of a workflow id.
(
    select * from open_brief_v3
    where id in (
        select id from tasks
        where namespace = $2 and workflow_id = $11 and id < $1::uuid
            and :part(filter)
            and ($8::smallint is null or kind = $8)
            and ($9::text is null or type <> $9)
        order by id desc
        limit $7
    )
)
union all
(
    select * from closed_brief_v3
    where id in (
        select id from closed_tasks
        where namespace = $2 and workflow_id = $11 and id < $1::uuid
            and :part(filter)
            and ($8::smallint is null or kind = $8)
            and ($9::text is null or type <> $9)
            and not $10::boolean
        order by id desc
        limit $7
    )
)
order by id desc
limit $7;

-- name: find_activity
-- The open activity or group of a run, or call of a group, that has an id.
select id from tasks where parent_run_id = $1 and idempotency_key = $2 and kind in (2, 10);

-- name: resolve
-- Write into a closed run what people have done about it, so it is no dead letter and owes nothing any more; a row if there is one.
update closed_tasks set resolution = $1, failure_group = null, failure_type = null, owed = null
where id = $2 returning id;

-- name: resolutions
-- What people have written into closed runs.
select id, resolution from closed_tasks where id = any ($1::uuid[]) and resolution is not null;
