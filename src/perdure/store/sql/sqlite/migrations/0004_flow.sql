-- Limits on what runs at once and on how often something starts, and what tasks carry for them.
--
-- A task that a limit refuses leaves the ready index (place becomes null): blocked_on says which limit it was, and
-- blocked_place keeps its place.

alter table tasks add column concurrency_key text;
alter table tasks add column weight integer not null default 1;
alter table tasks add column blocked_place integer;
alter table closed_tasks add column concurrency_key text;
alter table closed_tasks add column weight integer not null default 1;

create index tasks_blocked on tasks (blocked_on, priority, blocked_place, id) where blocked_on is not null;
-- Together with tasks_session all that is leased: attempts that somebody outside ends have no session.
create index tasks_deferred on tasks (namespace) where state = 2 and session is null;

create table limits (
    namespace text not null,
    scope text not null,
    name text not null,
    max_running integer,
    rate integer,
    per integer,
    burst integer,
    weight integer,
    paused integer not null,
    declared integer not null,
    note text not null,
    updated_at integer not null,
    primary key (namespace, scope, name)
) strict, without rowid;

-- Token buckets that are not full, and when each will be.
create table buckets (
    subject text primary key,
    full_at integer not null
) strict, without rowid;
