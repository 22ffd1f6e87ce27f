-- Events, streams, and the webhooks that events are sent to.

-- name: publish_closed
-- One event of a type for each of these closed tasks whose namespace has its events recorded.
insert into outbox (namespace, type, at, task_id, task_type, app, queue, attempt)
select closed.namespace, $1, closed.closed_at, closed.id, closed.type, closed.app, closed.queue, closed.attempt
from unnest($3::uuid[]) as done (id)
join closed_tasks as closed on closed.id = done.id
where closed.namespace = any($2::text[]);

-- name: recording
-- Namespaces whose events are recorded.
select namespace from event_feeds where recording;

-- name: record_events
-- Begin or end to record the events of a namespace.
insert into event_feeds (namespace, recording) values ($1, $2)
on conflict (namespace) do update set recording = excluded.recording;

-- name: feed
-- Whether events of a namespace are recorded, up to where they were deleted, and the last one that may be read.
select recording, trimmed_xid, trimmed_seq, coalesce(last.xid, 0), coalesce(last.seq, 0)
from event_feeds
left join lateral (
    select xid, seq
    from outbox
    where outbox.namespace = event_feeds.namespace
        and xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    order by xid desc, seq desc
    limit 1
) as last on true
where event_feeds.namespace = $1;

-- name: events
-- Events of a namespace behind a cursor, in order, below the oldest transaction that still runs.
select
    namespace, type, at, task_id, task_type, app, queue, attempt, workflow_id, failure_code, failure_type, reason,
    xid, seq
from outbox
where namespace = $1 and (xid, seq) > ($2::bigint, $3::bigint)
    and xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
order by xid, seq
limit $4;

-- name: last_event_before
-- The last event of a namespace before a time.
select xid, seq
from outbox
where namespace = $1 and at < $2 and xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
order by xid desc, seq desc
limit 1;

-- name: trim_events
-- Delete the oldest events of each namespace and note up to where; how many.
with old as materialized (
    select first.*
    from event_feeds
    cross join lateral (
        select namespace, xid, seq, at
        from outbox
        where outbox.namespace = event_feeds.namespace
        order by xid, seq
        limit $2
    ) as first
    where first.at < $1
),
gone as (
    delete from outbox
    using old
    where outbox.namespace = old.namespace and outbox.xid = old.xid and outbox.seq = old.seq
    returning outbox.namespace, outbox.xid, outbox.seq
),
noted as (
    update event_feeds set trimmed_xid = last.xid, trimmed_seq = last.seq
    from (select distinct on (namespace) * from gone order by namespace, xid desc, seq desc) as last
    where event_feeds.namespace = last.namespace and (trimmed_xid, trimmed_seq) < (last.xid, last.seq)
)
select count(*) from gone;

-- name: stream_ends
-- How far the streams of these tasks are.
select task_id, namespace, lease_number, lease_chunks, chunks, bytes, touched_at
from streams
where task_id = any($1::uuid[]);

-- name: put_streams
-- How far streams are now.
insert into streams (task_id, namespace, lease_number, lease_chunks, chunks, bytes, touched_at)
select * from unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::bigint[], $7::bigint[])
on conflict (task_id) do update set
    lease_number = excluded.lease_number, lease_chunks = excluded.lease_chunks, chunks = excluded.chunks,
    bytes = excluded.bytes, touched_at = excluded.touched_at;

-- name: chunks
-- Chunks of a stream from a number on, in order.
select task_id, number, attempt, kind, data
from stream_chunks
where task_id = $1 and number >= $2
order by number
limit $3;

-- name: trim_streams
-- Delete the streams of closed tasks that were written to before a time, with their chunks; how many.
with old as materialized (
    select task_id
    from (select task_id from streams where touched_at < $1 order by touched_at limit $2) as first
    where not exists (select from tasks where tasks.id = first.task_id)
),
gone_chunks as (
    delete from stream_chunks using old where stream_chunks.task_id = old.task_id
),
gone as (
    delete from streams using old where streams.task_id = old.task_id returning 1
)
select count(*) from gone;

-- part: webhook
-- The fields of core/webhooks.py Webhook in their order.
id, namespace, url, secret, types, created_at, xid, seq, disabled_at, note, failures, failing_since, retry_at,
    last_error, sent_at, lease_owner, lease_until

-- name: webhooks
-- All webhooks of a namespace, or of every one, oldest first.
select :part(webhook)
from webhooks
where $1::text is null or namespace = $1
order by created_at, id;

-- name: add_webhook
-- One more.
insert into webhooks (:part(webhook))
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);

-- name: take_webhook
-- Lease a webhook that nobody else has: id, owner, until, now.
update webhooks set lease_owner = $2, lease_until = $3
where id = $1 and (lease_owner is null or lease_owner = $2 or lease_until < $4)
returning :part(webhook);

-- name: put_webhook
-- Write what changes about a webhook; with an owner, only as long as that one has its lease.
update webhooks
set xid = $3, seq = $4, disabled_at = $5, note = $6, failures = $7, failing_since = $8, retry_at = $9,
    last_error = $10, sent_at = $11, lease_owner = $12, lease_until = $13
where id = $1 and ($2::bigint is null or lease_owner = $2)
returning 1;

-- name: remove_webhook
-- Delete a webhook with its dead letters; a row if there was one.
with gone as (
    delete from webhooks where namespace = $1 and id = $2 returning id
),
gone_letters as (
    delete from dead_letters using gone where dead_letters.webhook_id = gone.id
)
select id from gone;

-- name: bury
-- An event that is not tried any more.
insert into dead_letters (webhook_id, xid, seq, at, tries, error, body) values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing;

-- name: dead_letters
-- Those of a webhook, oldest event first.
select webhook_id, xid, seq, at, tries, error, body from dead_letters where webhook_id = $1 order by xid, seq limit $2;
