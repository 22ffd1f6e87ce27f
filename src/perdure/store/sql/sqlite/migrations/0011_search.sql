-- Searches: what runs are found by, and the indexes along which searches walk.
--
-- A row of search_attributes is one value of a run: `value` are bytes in the order of the values, `closed` whether the
-- run is. Jobs have none, and the indexes leave out jobs that succeeded, so they cost those nothing.

create table search_attributes (
    task_id blob not null,
    name text not null,
    value blob not null,
    namespace text not null,
    closed integer not null,
    primary key (task_id, name, value)
) strict, without rowid;
create index search_attributes_value on search_attributes (namespace, name, value, closed, task_id);

create table search_attribute_types (
    namespace text not null,
    name text not null,
    type text not null,
    primary key (namespace, name)
) strict, without rowid;

create index tasks_runs on tasks (namespace, id) where kind = 3;
create index tasks_runs_type on tasks (namespace, type, id) where kind = 3;
create index closed_tasks_runs on closed_tasks (namespace, id) where kind = 3;
create index closed_tasks_runs_type on closed_tasks (namespace, type, id) where kind = 3;
create index closed_tasks_runs_closed_at on closed_tasks (namespace, closed_at, id) where kind = 3;
create index closed_tasks_state on closed_tasks (namespace, kind, state, id) where state <> 10;
create index closed_tasks_error on closed_tasks (namespace, kind, failure_type, id) where failure_type is not null;
