-- Dead letters: a closed task that failed for good has the number of its group and the type of its error, and, once it
-- was retried, the id of the task that repeats it. Rows that closed before this migration have none.

alter table closed_tasks add column failure_group integer;
alter table closed_tasks add column failure_type text;
alter table closed_tasks add column retried_by blob;

create index closed_tasks_failures on closed_tasks (namespace, failure_group, id, closed_at)
where failure_group is not null and retried_by is null;
-- What asks for a group must not go by this one, on whatever statistics: hence the other column.
create index closed_tasks_dead on closed_tasks (namespace, id)
where failure_type is not null and retried_by is null;
