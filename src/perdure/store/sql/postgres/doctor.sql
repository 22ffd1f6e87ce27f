-- What the standing checks look at; none of these reads more than its bounds allow.

-- name: window_end
-- The last one of so many open tasks behind an id, in order of id.
select id from tasks where id > $1::uuid order by id limit 1 offset $2;

-- name: suspects
-- Open tasks between two ids that somebody should look at, without payload and headers.
select *
from open_brief_v3
where id in (
    select id
    from tasks
    where id > $1::uuid and id <= $2::uuid and (
        kind = 3
        or state = 2 and attempt_started_at < $3
        or place is null and session is null and wake_at is null and blocked_on is null
    )
)
order by id;

-- name: every_session
-- Registered worker processes of all namespaces.
select incarnation, epoch, namespace, identity, queues, slots, build, started_at, seen_at, ends_at
from workers
limit $1;

-- name: settings
-- Settings on which it depends that what is committed stays.
select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit');
