-- Activities that somebody outside ends by their id, and what people have written about closed runs.

create index tasks_activity on tasks (parent_run_id, idempotency_key) where kind = 2;

alter table closed_tasks add column resolution blob;
