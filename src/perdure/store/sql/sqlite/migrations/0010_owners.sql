-- What people have to look after: closed runs that owe compensations (1: they did not all run, 2: some failed), until
-- somebody has written a resolution; and who looks after a queue, with the number of ready tasks that is too many.

alter table closed_tasks add column owed integer;
create index closed_tasks_owing on closed_tasks (namespace, id) where owed is not null;

create table queue_owners (
    namespace text not null,
    queue text not null,
    owner text not null,
    alert_depth integer not null,
    updated_at integer not null,
    primary key (namespace, queue)
) strict, without rowid;
