-- What the standing checks look at; none of these reads more than its bounds allow.

-- name: window_end
-- The last one of so many open tasks behind an id, in order of id.
select id from tasks where id > ? order by id limit 1 offset ?;

-- name: suspects
-- Open tasks between two ids that somebody should look at, without payload and headers.
select id, namespace, type, state, lane, created_at, updated_at, app, kind, queue, rowid,
    null, null, idempotency_key, retry_policy, timeouts, max_attempts, identity, retry_of,
    priority, fairness_key, place, run_at, ready_at, expires_at, attempt_deadline, deadline, heartbeat_deadline,
    lease_length, lease_until, cancel_deadline, wake_at,
    attempt, lost_deliveries, lease_number, lease_bits, received, session, worker, poll,
    started_at, attempt_started_at, heartbeat_at, cancel_requested_at, cancel_reason, progress, checkpoint, failure,
    done_number, done_bits, done_state, parent_run_id, parent_event_id, null, null,
    concurrency_key, weight, blocked_on, blocked_place
from tasks
where id > ? and id <= ? and (
    kind = 3
    or state = 2 and attempt_started_at < ?
    or place is null and session is null and wake_at is null and blocked_on is null
)
order by id;

-- name: every_session
-- Registered worker processes of all namespaces.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
limit ?;

-- name: settings
-- Settings on which it depends that what is committed stays.
select 'journal_mode', journal_mode from pragma_journal_mode
union all
select 'synchronous', synchronous from pragma_synchronous;
