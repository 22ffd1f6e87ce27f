-- name: lock_session
-- A worker process; waits for its row.
with locked as materialized (
    select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
    from workers
    where incarnation = $1
    for update
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: put_session
-- Register a worker process, or what is new about it.
insert into workers (incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (incarnation) do update
set epoch = excluded.epoch, namespace = excluded.namespace, identity = excluded.identity, queues = excluded.queues,
    slots = excluded.slots, build = excluded.build, started_at = excluded.started_at, seen_at = excluded.seen_at,
    ends_at = excluded.ends_at
where workers.epoch <= excluded.epoch;

-- name: ending_sessions
-- Worker processes whose leases are to be ended by now, oldest first, unless another server holds them.
with locked as materialized (
    select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
    from workers
    where ends_at <= (select coalesce($2::bigint, now_us()))
    order by ends_at
    limit $1
    for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: delete_sessions
-- Forget worker processes.
delete from workers where incarnation = any($1::bigint[]);

-- name: sessions
-- The worker processes of a namespace, oldest first.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
where namespace = $1
order by started_at, incarnation;
