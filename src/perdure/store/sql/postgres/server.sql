-- What only PostgreSQL needs: its sessions, transactions, clock and notifications.

-- name: backend
-- Which server process serves this connection: its pid, its start, and the start of the server that it belongs to.
select
    pid,
    (extract(epoch from backend_start) * 1000000)::bigint,
    (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
from pg_stat_activity
where pid = pg_backend_pid();

-- name: end_backend
-- End a server process whose connection broke; no row once it is gone.
select pg_terminate_backend(pid)
from pg_stat_activity
where pid = $1 and (extract(epoch from backend_start) * 1000000)::bigint = $2;

-- name: outcome
-- Whether a transaction has committed; no row when this is not the server run that it belonged to.
select pg_xact_status($1::bigint::text::xid8) = 'committed'
where (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint = $2;

-- name: clock
-- The clock, when nothing else is asked.
select now_us();

-- name: set_clock
-- Override the clock of this connection.
select set_config('perdure.now', $1::bigint::text, false);

-- name: announce
-- Send a hint to all who listen.
select pg_notify('perdure', $1);

-- name: prepare_migrations
-- One migration at a time; the lock ends with the connection.
select pg_advisory_lock(7237949270361);
create schema if not exists perdure;
create table if not exists migrations (
    name text primary key,
    applied_at timestamptz not null default clock_timestamp()
);

-- name: has_migrations
-- Whether any migration ran.
select to_regclass('perdure.migrations') is not null;

-- name: migrations
-- Those applied.
select name from migrations;

-- name: add_migration
-- One was applied.
insert into migrations (name) values ($1);
