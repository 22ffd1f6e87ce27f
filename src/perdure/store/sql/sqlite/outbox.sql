-- Events, streams, and the webhooks that events are sent to.

-- name: publish
-- New events, as the transaction's own.
insert into outbox (
    namespace, type, at, task_id, task_type, app, queue, attempt, workflow_id, failure_code, failure_type, reason
)
values :rows(12);

-- name: publish_closed
-- One event of a type for each of these closed tasks whose namespace has its events recorded.
with feeds (name) as (select value from json_each(?2))
insert into outbox (namespace, type, at, task_id, task_type, app, queue, attempt)
select namespace, ?1, closed_at, id, type, app, queue, attempt
from (values :rows(1)) as done
cross join closed_tasks
where id = column1 and namespace in (select name from feeds);

-- name: recording
-- Namespaces whose events are recorded.
select namespace from event_feeds where recording;

-- name: record_events
-- Begin or end to record the events of a namespace.
insert into event_feeds (namespace, recording) values (?, ?)
on conflict (namespace) do update set recording = excluded.recording;

-- name: feed
-- Whether events of a namespace are recorded, up to where they were deleted, and the last one.
select
    recording, trimmed_xid, trimmed_seq,
    0, coalesce((select max(seq) from outbox where outbox.namespace = event_feeds.namespace), 0)
from event_feeds
where namespace = ?;

-- name: events
-- Events of a namespace behind a cursor, in order.
select
    namespace, type, at, task_id, task_type, app, queue, attempt, workflow_id, failure_code, failure_type, reason,
    0, seq
from outbox
where namespace = ?1 and seq > ?3 and ?2 = 0
order by seq
limit ?4;

-- name: last_event_before
-- The last event of a namespace before a time.
select 0, seq from outbox where namespace = ? and at < ? order by seq desc limit 1;

-- name: trim_events
-- Of the oldest events of each namespace, note up to where they are deleted; then delete them.
insert into event_feeds (namespace, recording, trimmed_xid, trimmed_seq)
select namespace, 0, 0, max(seq)
from (select namespace, seq, at from outbox order by seq limit ?2)
where at < ?1
group by namespace
on conflict (namespace) do update set trimmed_seq = max(trimmed_seq, excluded.trimmed_seq);
delete from outbox
where seq in (select seq from (select seq, at from outbox order by seq limit ?2) where at < ?1);

-- name: stream_ends
-- How far the streams of these tasks are.
select task_id, namespace, lease_number, lease_chunks, chunks, bytes, touched_at
from streams
where task_id in (values :rows(1));

-- name: put_streams
-- How far streams are now.
insert into streams (task_id, namespace, lease_number, lease_chunks, chunks, bytes, touched_at)
select column1, column2, column3, column4, column5, column6, column7 from (values :rows(7)) where true
on conflict (task_id) do update set
    lease_number = excluded.lease_number, lease_chunks = excluded.lease_chunks, chunks = excluded.chunks,
    bytes = excluded.bytes, touched_at = excluded.touched_at;

-- name: add_chunks
-- New chunks of streams.
insert into stream_chunks (task_id, number, attempt, kind, data) values :rows(5);

-- name: chunks
-- Chunks of a stream from a number on, in order.
select task_id, number, attempt, kind, data from stream_chunks where task_id = ? and number >= ? order by number limit ?;

-- name: trim_streams
-- Delete the streams of closed tasks that were written to before a time: their chunks, then themselves.
delete from stream_chunks
where task_id in (
    select task_id from (select task_id from streams where touched_at < ?1 order by touched_at limit ?2)
    where not exists (select 1 from tasks where tasks.id = task_id)
);
delete from streams
where task_id in (
    select task_id from (select task_id from streams where touched_at < ?1 order by touched_at limit ?2)
    where not exists (select 1 from tasks where tasks.id = task_id)
);

-- part: webhook
-- The fields of core/webhooks.py Webhook in their order.
id, namespace, url, secret, types, created_at, xid, seq, disabled_at, note, failures, failing_since, retry_at,
    last_error, sent_at, lease_owner, lease_until

-- name: webhooks
-- All webhooks of a namespace, or of every one, oldest first.
select :part(webhook)
from webhooks
where ?1 is null or namespace = ?1
order by created_at, id;

-- name: add_webhook
-- One more.
insert into webhooks (:part(webhook))
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17);

-- name: take_webhook
-- Lease a webhook that nobody else has: id, owner, until, now.
update webhooks set lease_owner = ?2, lease_until = ?3
where id = ?1 and (lease_owner is null or lease_owner = ?2 or lease_until < ?4)
returning :part(webhook);

-- name: put_webhook
-- Write what changes about a webhook; with an owner, only as long as that one has its lease.
update webhooks
set xid = ?3, seq = ?4, disabled_at = ?5, note = ?6, failures = ?7, failing_since = ?8, retry_at = ?9,
    last_error = ?10, sent_at = ?11, lease_owner = ?12, lease_until = ?13
where id = ?1 and (?2 is null or lease_owner = ?2);

-- name: remove_webhook
-- Delete a webhook and, if there was one, its dead letters.
delete from webhooks where namespace = ? and id = ?;
delete from dead_letters where webhook_id = ?;

-- name: bury
-- An event that is not tried any more.
insert into dead_letters (webhook_id, xid, seq, at, tries, error, body) values (?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: dead_letters
-- Those of a webhook, oldest event first.
select webhook_id, xid, seq, at, tries, error, body from dead_letters where webhook_id = ? order by xid, seq limit ?;
