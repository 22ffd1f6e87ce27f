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
-- Whether a batch has committed: by an id that it inserted, else by its transaction id in the same run of the server. The
-- message makes this statement's own commit wait for the standby that the batch's commit may not have waited for.
select
    case
        when $1::uuid is not null
            then exists (select from tasks where id = $1) or exists (select from closed_tasks where id = $1)
        when (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint = $3::bigint
            then coalesce(pg_xact_status($2::bigint::text::xid8) = 'committed', false)
        else false
    end,
    pg_logical_emit_message(true, 'perdure', '');

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

-- name: settings_not_made
-- Which of these settings have another value on this connection.
select name
from unnest($1::text[], $2::text[]) as wanted (name, value)
where current_setting(name) <> value
limit 1;
