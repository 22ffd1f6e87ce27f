-- Statements that lock answer two more columns in every row, and one row of nulls when nothing was granted: `now`, the
-- clock after the last lock was granted (a subquery that counts the locked rows has waited for them all), and `xid`, by
-- which the outcome of a broken commit is found out.

-- part: filter
-- What tasks must be to be listed; null does not narrow it.
($3::smallint is null or state = $3)
    and ($4::text is null or queue = $4)
    and ($5::text is null or type = $5)
    and ($6::bigint is null or created_at >= $6)

-- name: lock
-- Open tasks by id, without payload and headers; those that are held elsewhere are skipped.
with locked as materialized (
    select * from open_brief_v3 where id = any($1::uuid[]) for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: lock_waiting
-- Open tasks by id, without payload and headers; waits for those that are held elsewhere, in order of id.
with locked as materialized (
    select * from open_brief_v3 where id = any($1::uuid[])
    order by id
    for update
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: closed
-- Which of these ids closed tasks have.
select id from closed_tasks where id = any($1::uuid[]);

-- name: trace
-- Tasks by id, open or closed, without payload, headers and result; one snapshot.
select * from open_brief_v3 where id = any($1::uuid[])
union all
select * from closed_brief_v3 where id = any($1::uuid[]);

-- name: read
-- Tasks by id, open or closed, whole; one snapshot.
select * from open_whole_v3 where id = any($1::uuid[])
union all
select * from closed_whole_v3 where id = any($1::uuid[]);

-- name: find
-- Open and closed tasks that pass a filter, newest id first, without payload, headers and result.
(
    select * from open_brief_v3
    where id < $1::uuid and namespace = $2
        and :part(filter)
        and ($8::smallint is null or kind = $8)
        and ($9::text is null or type <> $9)
    order by id desc
    limit $7
)
union all
(
    select * from closed_brief_v3
    where id < $1::uuid and namespace = $2
        and :part(filter)
        and ($8::smallint is null or kind = $8)
        and ($9::text is null or type <> $9)
        and not $10::boolean
    order by id desc
    limit $7
)
order by id desc
limit $7;

-- name: claim
-- Ready tasks from behind a place of each lane on, whole, in queue order.
with locked as materialized (
    select ready.*
    from unnest($1::text[], $2::integer[], $3::smallint[], $4::bigint[], $5::uuid[])
        as demand (lane, most, priority, place, id)
    cross join lateral (
        select *
        from open_whole_v3 as task
        where task.lane = demand.lane and task.place is not null
            and (task.priority, task.place, task.id) > (demand.priority, demand.place, demand.id)
        order by task.priority, task.place, task.id
        limit demand.most
        for update skip locked
    ) as ready
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: due
-- Tasks whose alarm has gone off, oldest first, without payload and headers.
with locked as materialized (
    select *
    from open_brief_v3
    where wake_at > $3 and wake_at <= (select coalesce($2::bigint, now_us()))
    order by wake_at
    limit $1
    for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: leased_by
-- Tasks that a worker process holds, whole.
with locked as materialized (
    select * from open_whole_v3 where session = $1 and state = 2 order by id limit $2 for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: leased_by_poll
-- Tasks that one poll of a worker process got and whose receipt was not acknowledged, whole.
with locked as materialized (
    select *
    from open_whole_v3
    where session = $1 and poll = $3 and state = 2 and not received
    order by id
    limit $2
    for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: held
-- Tasks that a worker process holds, without payload and headers.
select * from open_brief_v3 where session = $1 order by id limit $2;

-- name: next_alarm
-- When the next alarm goes off.
select min(wake_at) from tasks where wake_at > $1;

-- name: places
-- The lowest and the highest place of each lane, by looks at both ends of each priority's range of the index.
select lanes.lane, min(starts.place), max(ends.place)
from unnest($1::text[]) as lanes (lane)
cross join generate_series(1, 5) as priorities (priority)
cross join lateral (
    select place
    from tasks
    where tasks.lane = lanes.lane and tasks.priority = priorities.priority and place is not null
    order by place
    limit 1
) as starts
cross join lateral (
    select place
    from tasks
    where tasks.lane = lanes.lane and tasks.priority = priorities.priority and place is not null
    order by place desc
    limit 1
) as ends
group by lanes.lane;

-- name: beat
-- Extend leases, fenced by the whole lease, except of rows held elsewhere; what changes is decide.beat.
with beats as materialized (
    select *
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[])
        as beat (id, lease_number, lease_bits, progress, checkpoint)
),
held as materialized (
    select tasks.id, tasks.updated_at, beats.progress, beats.checkpoint
    from beats
    join tasks on tasks.id = beats.id
    where tasks.state = 2 and tasks.lease_number = beats.lease_number and tasks.lease_bits = beats.lease_bits
    for update of tasks skip locked
),
clock as materialized (
    select count(*), coalesce($6::bigint, now_us()) as now from held
),
timed as materialized (
    select held.*, clock.now as clock_now, greatest(clock.now, held.updated_at) as now from held cross join clock
)
update tasks
set updated_at = timed.now,
    received = true,
    lost_deliveries = 0,
    lease_until = case when lease_until is not null then timed.now + lease_length end,
    heartbeat_deadline = coalesce(heartbeat_deadline + timed.now - heartbeat_at, heartbeat_deadline),
    heartbeat_at = timed.now,
    started_at = coalesce(started_at, attempt_started_at),
    progress = coalesce(timed.progress, tasks.progress),
    checkpoint = coalesce(timed.checkpoint, tasks.checkpoint)
from timed
where tasks.id = timed.id
returning tasks.id, cancel_requested_at is not null, timed.clock_now, pg_current_xact_id()::text::bigint;

-- name: succeed
-- Close leased jobs that succeeded, fenced by the whole lease, except those held elsewhere; what changes is
-- decide.succeed.
with held as materialized (
    select tasks.id, done.progress, done.checkpoint, done.result
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[])
        as done (id, lease_number, lease_bits, progress, checkpoint, result)
    join tasks on tasks.id = done.id
    where tasks.state = 2 and tasks.kind = 1
        and tasks.lease_number = done.lease_number and tasks.lease_bits = done.lease_bits
    for update of tasks skip locked
),
clock as materialized (
    select count(*), coalesce($7::bigint, now_us()) as now from held
),
ended as (
    delete from tasks
    using held, clock
    where tasks.id = held.id
    returning
        tasks.id, tasks.created_at, tasks.lease_length, tasks.max_attempts, tasks.lease_number, tasks.lease_bits,
        tasks.kind, tasks.priority, tasks.namespace, tasks.app, tasks.type, tasks.queue, tasks.lane,
        tasks.fairness_key, tasks.identity, tasks.run_at, tasks.expires_at, tasks.deadline, tasks.attempt_started_at,
        tasks.retry_of, tasks.idempotency_key, tasks.worker, tasks.retry_policy, tasks.timeouts, tasks.headers,
        tasks.payload, tasks.attempt + 1 as attempt, tasks.lost_deliveries, tasks.cancel_requested_at,
        tasks.cancel_reason, tasks.concurrency_key, tasks.weight,
        coalesce(tasks.started_at, tasks.attempt_started_at) as started_at,
        coalesce(held.progress, tasks.progress) as progress,
        coalesce(held.checkpoint, tasks.checkpoint) as checkpoint, held.result,
        clock.now as clock_now, greatest(clock.now, tasks.updated_at) as now
),
closed as (
    insert into closed_tasks (
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, done_number, done_bits, done_state, state, updated_at, closed_at,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result,
        concurrency_key, weight
    )
    select
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, lease_number, lease_bits, 10, 10, now, now,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result,
        concurrency_key, weight
    from ended
)
select id, clock_now, pg_current_xact_id()::text::bigint from ended;

-- name: exchange
-- `succeed`, and claims of one poll, unless one of the tasks has time-outs; what changes is decide.claim. Every row ends
-- with whether there are time-outs, the ids that were closed, the clock and the transaction id.
with held as materialized (
    select tasks.id, done.progress, done.checkpoint, done.result
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[])
        as done (id, lease_number, lease_bits, progress, checkpoint, result)
    join tasks on tasks.id = done.id
    where tasks.state = 2 and tasks.kind = 1
        and tasks.lease_number = done.lease_number and tasks.lease_bits = done.lease_bits
    for update of tasks skip locked
),
ready as materialized (
    select *
    from open_whole_v3 as task
    where task.lane = $8 and task.place is not null and (task.priority, task.place, task.id) > ($10, $11, $12)
    order by task.priority, task.place, task.id
    limit $9
    for update skip locked
),
clock as materialized (
    select
        coalesce($7::bigint, now_us()) as now, pg_current_xact_id()::text::bigint as xid, ready.timed
    from (select count(*) from held) as held (number)
    cross join (select count(*), coalesce(bool_or(timeouts is not null), false) from ready) as ready (number, timed)
),
ended as (
    delete from tasks
    using held, clock
    where tasks.id = held.id
    returning
        tasks.id, tasks.created_at, tasks.lease_length, tasks.max_attempts, tasks.lease_number, tasks.lease_bits,
        tasks.kind, tasks.priority, tasks.namespace, tasks.app, tasks.type, tasks.queue, tasks.lane,
        tasks.fairness_key, tasks.identity, tasks.run_at, tasks.expires_at, tasks.deadline, tasks.attempt_started_at,
        tasks.retry_of, tasks.idempotency_key, tasks.worker, tasks.retry_policy, tasks.timeouts, tasks.headers,
        tasks.payload, tasks.attempt + 1 as attempt, tasks.lost_deliveries, tasks.cancel_requested_at,
        tasks.cancel_reason, tasks.concurrency_key, tasks.weight,
        coalesce(tasks.started_at, tasks.attempt_started_at) as started_at,
        coalesce(held.progress, tasks.progress) as progress,
        coalesce(held.checkpoint, tasks.checkpoint) as checkpoint, held.result,
        greatest(clock.now, tasks.updated_at) as now
),
closed as (
    insert into closed_tasks (
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, done_number, done_bits, done_state, state, updated_at, closed_at,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result,
        concurrency_key, weight
    )
    select
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, lease_number, lease_bits, 10, 10, now, now,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result,
        concurrency_key, weight
    from ended
),
numbered as (
    select ready.id, greatest(clock.now, ready.updated_at) as now, row_number() over (order by priority, place, id)
    from ready
    cross join clock
    where not clock.timed
),
taken as (
    update tasks
    set state = 2, received = false, place = null, ready_at = null, lease_number = tasks.lease_number + 1,
        lease_bits = ($16::bigint[])[numbered.row_number], session = $13, worker = $14, poll = $15,
        attempt_started_at = numbered.now, heartbeat_at = numbered.now,
        lease_until = numbered.now + least(10000000, tasks.lease_length),
        wake_at = least(numbered.now + least(10000000, tasks.lease_length), tasks.deadline),
        updated_at = numbered.now
    from numbered
    where tasks.id = numbered.id
)
select ready.*, clock.timed, array(select id from ended), clock.now, clock.xid
from clock
left join ready on true
order by ready.priority, ready.place, ready.id;

-- name: close
-- Move jobs to the closed ones, fenced by the lease; what does not change stays inside the database. Columns of workflow
-- runs are not named: jobs leave them null.
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
        tasks.concurrency_key, tasks.weight, v.done_bits, v.result, v.class
)
insert into closed_tasks (
    id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
    fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
    retry_policy, timeouts, headers, payload, concurrency_key, weight, done_bits, result,
    state, updated_at, attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, done_number,
    done_state, closed_at, progress, checkpoint, failure
)
select
    id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
    fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
    retry_policy, timeouts, headers, payload, concurrency_key, weight, done_bits, result,
    ($7::smallint[])[class], ($8::bigint[])[class], ($9::integer[])[class], ($10::integer[])[class],
    ($11::bigint[])[class], ($12::bigint[])[class], ($13::text[])[class], ($14::integer[])[class],
    ($15::smallint[])[class], ($16::bigint[])[class], ($17::bytea[])[class], ($18::bytea[])[class],
    ($19::bytea[])[class]
from ended;

-- name: lease
-- Write claims.
update tasks
set place = null, ready_at = null, lease_number = v.lease_number, lease_bits = v.lease_bits,
    state = ($5::smallint[])[v.class], received = ($6::boolean[])[v.class], session = ($7::bigint[])[v.class],
    worker = ($8::text[])[v.class], poll = ($9::bigint[])[v.class], attempt_started_at = ($10::bigint[])[v.class],
    heartbeat_at = ($11::bigint[])[v.class], lease_until = ($12::bigint[])[v.class],
    attempt_deadline = ($13::bigint[])[v.class], heartbeat_deadline = ($14::bigint[])[v.class],
    wake_at = ($15::bigint[])[v.class], updated_at = ($16::bigint[])[v.class]
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::integer[]) as v (id, lease_number, lease_bits, class)
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
    done_number = v.done_number, done_bits = v.done_bits, done_state = v.done_state, blocked_on = v.blocked_on,
    blocked_place = v.blocked_place
from unnest(
    $1::uuid[], $2::smallint[], $3::boolean[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::smallint[], $19::integer[], $20::integer[], $21::bigint[], $22::bigint[],
    $23::text[], $24::bigint[], $25::bytea[], $26::bytea[], $27::bytea[], $28::integer[], $29::bigint[],
    $30::smallint[], $31::text[], $32::bigint[]
) as v (
    id, state, received, lease_number, lease_bits, session, worker, poll, attempt_started_at, heartbeat_at,
    lease_until, attempt_deadline, heartbeat_deadline, wake_at, updated_at, place, ready_at, priority, attempt,
    lost_deliveries, started_at, cancel_requested_at, cancel_reason, cancel_deadline, progress, checkpoint, failure,
    done_number, done_bits, done_state, blocked_on, blocked_place
)
where tasks.id = v.id;
