-- Events for the world outside, the webhooks that they are sent to, and the streams of tasks.
--
-- Rows of `outbox` are written by the transaction that they tell of. Their number never comes again, because readers
-- keep it: hence autoincrement.

create table outbox (
    seq integer primary key autoincrement,
    namespace text not null,
    type text not null,
    at integer not null,
    task_id blob not null,
    task_type text not null,
    app text not null,
    queue text not null,
    attempt integer not null,
    workflow_id text not null default '',
    failure_code text not null default '',
    failure_type text not null default ''
) strict;
create index outbox_namespace on outbox (namespace, seq);

create table event_feeds (
    namespace text primary key,
    recording integer not null,
    trimmed_xid integer not null default 0,
    trimmed_seq integer not null default 0
) strict;

create table webhooks (
    id text primary key,
    namespace text not null,
    url text not null,
    secret text not null,
    types text not null,
    created_at integer not null,
    xid integer not null,
    seq integer not null,
    disabled_at integer,
    note text not null default '',
    failures integer not null default 0,
    failing_since integer,
    retry_at integer,
    last_error text not null default '',
    sent_at integer,
    lease_owner integer,
    lease_until integer
) strict;

create table dead_letters (
    webhook_id text not null,
    xid integer not null,
    seq integer not null,
    at integer not null,
    tries integer not null,
    error text not null,
    body blob not null,
    primary key (webhook_id, xid, seq)
) strict;

create table streams (
    task_id blob primary key,
    namespace text not null,
    lease_number integer not null,
    lease_chunks integer not null,
    chunks integer not null,
    bytes integer not null,
    touched_at integer not null
) strict;
create index streams_touched on streams (touched_at);

create table stream_chunks (
    rowid integer primary key,
    task_id blob not null,
    number integer not null,
    attempt integer not null,
    kind integer not null,
    data blob not null
) strict;
create unique index stream_chunks_task on stream_chunks (task_id, number);
