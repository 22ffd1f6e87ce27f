-- name: lock_session
-- A worker process.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
where incarnation = ?;

-- name: put_session
-- Register a worker process, or what is new about it.
insert into workers (incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (incarnation) do update
set epoch = excluded.epoch, namespace = excluded.namespace, identity = excluded.identity, queues = excluded.queues,
    slots = excluded.slots, build = excluded.build, started_at = excluded.started_at, seen_at = excluded.seen_at,
    ends_at = excluded.ends_at
where workers.epoch <= excluded.epoch;

-- name: ending_sessions
-- Worker processes whose leases are to be ended by now, oldest first.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
where ends_at <= ?
order by ends_at
limit ?;

-- name: delete_sessions
-- Forget worker processes.
delete from workers where incarnation in (values :rows(1));

-- name: sessions
-- The worker processes of a namespace, oldest first.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
where namespace = ?
order by started_at, incarnation;
