-- Schedules: rows of tasks of kind 8, listed by namespace.

create index tasks_schedules on tasks (namespace, id) where kind = 8;
