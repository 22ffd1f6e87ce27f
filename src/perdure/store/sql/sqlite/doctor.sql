-- What the standing checks look at; none of these reads more than its bounds allow.

-- name: window_end
-- The last one of so many open tasks behind an id, in order of id.
select id from tasks where id > ? order by id limit 1 offset ?;

-- name: suspects
-- Open tasks between two ids that somebody should look at, without payload and headers.
select :part(open_brief)
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
