-- Workflow runs: their histories, their inboxes, and the columns that the first tables lack.
--
-- A page of a history is written once; a message lives until a turn has seen it. Both may be large, so their tables have
-- an integer rowid.

create table history (
    rowid integer primary key,
    run_id blob not null,
    first integer not null,
    count integer not null,
    data blob not null
) strict;
create unique index history_run on history (run_id, first);

create table inbox (
    rowid integer primary key,
    run_id blob not null,
    seq integer not null,
    kind integer not null,
    at integer not null,
    body blob not null
) strict;
create unique index inbox_run on inbox (run_id, seq);

alter table tasks add column inbox_taken integer;
alter table tasks add column turn_scheduled_at integer;
alter table tasks add column turn_written integer;
alter table tasks add column failures integer;
alter table tasks add column children integer;
alter table closed_tasks add column parent_close_policy integer;
alter table closed_tasks add column chain_deadline integer;
alter table closed_tasks add column turn_timeout integer;

create index tasks_parent on tasks (parent_run_id, id) where parent_run_id is not null;
create index tasks_workflow on tasks (namespace, workflow_id, id) where workflow_id is not null;
create index closed_tasks_workflow on closed_tasks (namespace, workflow_id, id) where workflow_id is not null;
