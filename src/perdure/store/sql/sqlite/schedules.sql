-- Schedules are rows of tasks, which only these statements look for by what they are.

-- name: schedule_ids
-- Those of a namespace, newest first, from before an id on.
select id from tasks where kind = 8 and namespace = ? and id < ? order by id desc limit ?;
