-- Workflow runs: their columns in the tables of tasks, the fields of core/run.py Run in their order; their histories, and
-- their inboxes. Where a list of pairs is given, its first column is a run id.

-- part: open_run
-- The workflow columns of open runs.
id, workflow_id, first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id,
    reset_event_id, parent_namespace, parent_workflow_id, parent_close_policy, chain_attempt, chain_deadline, cron,
    branch, event_count, history_bytes, inbox_count, inbox_taken, turn_inbox, turn_prepared_at, turn_scheduled_at,
    turn_written, turn_timeout, failures, sticky_session, children, build, versioning_behavior, paused, memo,
    search_attributes

-- name: runs
-- The workflow columns of open runs, by id.
select :part(open_run)
from tasks
where id in (values :rows(1));

-- name: run_rows
-- The workflow columns of runs, open or closed; a closed one has no turn, no inbox and no children.
with wanted (id) as (values :rows(1))
select :part(open_run)
from tasks
where id in (select wanted.id from wanted)
union all
select id, workflow_id, first_run_id, original_run_id, previous_run_id, root_workflow_id, root_run_id, reset_run_id,
    reset_event_id, parent_namespace, parent_workflow_id, parent_close_policy, chain_attempt, chain_deadline, cron,
    branch, event_count, history_bytes, 0, 0, 0, null, 0,
    0, turn_timeout, 0, null, 0, build, versioning_behavior, 0, memo,
    search_attributes
from closed_tasks
where id in (select wanted.id from wanted);

-- name: put_runs
-- Write the workflow columns of open tasks: of runs that are usual, or any.
update tasks
set previous_run_id = null, reset_run_id = null, reset_event_id = null, parent_namespace = null,
    parent_workflow_id = null, parent_close_policy = 0, chain_attempt = 1, chain_deadline = null, cron = null,
    branch = 0, failures = 0, versioning_behavior = null, paused = 0, memo = null, search_attributes = null,
    workflow_id = column2, first_run_id = column3, original_run_id = column4, root_workflow_id = column5,
    root_run_id = column6, event_count = column7, history_bytes = column8, inbox_count = column9,
    inbox_taken = column10, turn_inbox = column11, turn_prepared_at = column12, turn_scheduled_at = column13,
    turn_written = column14, turn_timeout = column15, sticky_session = column16, children = column17, build = column18
from (values :rows(18)) as runs
where tasks.id = column1;
update tasks
set workflow_id = column2, first_run_id = column3, original_run_id = column4, root_workflow_id = column5,
    root_run_id = column6, event_count = column7, history_bytes = column8, inbox_count = column9,
    inbox_taken = column10, turn_inbox = column11, turn_prepared_at = column12, turn_scheduled_at = column13,
    turn_written = column14, turn_timeout = column15, sticky_session = column16, children = column17, build = column18,
    previous_run_id = column19, reset_run_id = column20, reset_event_id = column21, parent_namespace = column22,
    parent_workflow_id = column23, parent_close_policy = column24, chain_attempt = column25, chain_deadline = column26,
    cron = column27, branch = column28, failures = column29, versioning_behavior = column30, paused = column31,
    memo = column32, search_attributes = column33
from (values :rows(33)) as runs
where tasks.id = column1;

-- name: children
-- Open tasks whose parent is a run, from behind an id on, in order of id, without payload and headers.
select :part(open_brief)
from tasks
where parent_run_id = ? and id > ?
order by id
limit ?;

-- name: delete
-- Delete open tasks that leave no closed row: their attempts, their payloads, and, fenced by the lease, the tasks.
delete from attempts where task_id in (select id from tasks where rowid in (values :rows(1)));
delete from payloads where rowid in (select payload_at from tasks where rowid in (values :rows(1)));
delete from tasks
where rowid in (
    select tasks.rowid
    from (values :rows(3)) as gone
    cross join tasks
    where tasks.rowid = column1 and tasks.lease_number = column2 and tasks.lease_bits = column3
);

-- name: advance
-- Runs go on by an append of steps, fenced by the lease and by what it says of the run; what changes is core/advance.py.
update tasks
set event_count = event_count + steps.count,
    history_bytes = history_bytes + steps.bytes,
    turn_prepared_at = steps.at
from (
    select column1 as id, column2 as lease_number, column3 as lease_bits, column4 as completed, column5 as worker,
        column6 as at, column7 as after, column8 as count, column9 as bytes
    from (values :rows(9))
) as steps
where tasks.id = steps.id
    and tasks.state = 2
    and tasks.lease_number = steps.lease_number
    and tasks.lease_bits = steps.lease_bits
    and tasks.worker = steps.worker
    and tasks.updated_at <= steps.at
    and tasks.turn_prepared_at <= steps.at
    and tasks.turn_written = steps.completed
    and tasks.event_count = steps.after
returning id, inbox_count > turn_inbox;

-- name: append
-- New pages of histories.
insert into history (run_id, first, count, data) values :rows(4);

-- name: copy_pages
-- Pages of a history that hold nothing above a number, once more for another row.
insert into history (run_id, first, count, data)
select column2, first, count, data
from (values :rows(3)) as copied
cross join history
where run_id = column1 and first + count - 1 <= column3;

-- name: histories
-- Pages of a run's history in order, from the one that holds the event after a number on.
select run_id, first, count, data
from history
where run_id = :run_id
    and first >= coalesce((select max(first) from history where run_id = :run_id and first <= :after + 1), 0)
    and first + count > :after + 1
order by first
limit :limit;

-- name: history_sizes
-- The bytes of these pages.
select length(data)
from history
where run_id = :run_id
    and first >= coalesce((select max(first) from history where run_id = :run_id and first <= :after + 1), 0)
    and first + count > :after + 1
order by first
limit :limit;

-- name: inbox
-- Messages to runs behind a number.
select run_id, seq, kind, at, body
from (values :rows(2)) as wanted
cross join inbox
where run_id = column1 and seq > column2;

-- name: inbox_start
-- The first messages to a run behind a number, in order of arrival.
select run_id, seq, kind, at, body from inbox where run_id = ? and seq > ? order by seq limit ?;

-- name: inbox_sizes
-- The bytes of messages to a run behind a number, in order of arrival.
select length(body) from inbox where run_id = ? and seq > ? order by seq;

-- name: messages
-- Messages to a run, in order of arrival.
select run_id, seq, kind, at, body from inbox where run_id = ? order by seq limit ?;

-- name: post
-- New messages.
insert into inbox (run_id, seq, kind, at, body) values :rows(5);

-- name: take_messages
-- Delete the messages to runs up to a number.
delete from inbox
where rowid in (
    select inbox.rowid from (values :rows(2)) as taken cross join inbox where run_id = column1 and seq <= column2
);

-- name: find_runs
-- As `find`, of a workflow id.
select :part(open_brief)
from tasks
where namespace = :namespace and workflow_id = :workflow_id and id < :before
    and :part(filter)
    and (:kind is null or kind = :kind)
    and (:without_type is null or type <> :without_type)
union all
select :part(closed_brief)
from closed_tasks
where namespace = :namespace and workflow_id = :workflow_id and id < :before
    and :part(filter)
    and (:kind is null or kind = :kind)
    and (:without_type is null or type <> :without_type)
    and not :open
order by 1 desc
limit :limit;

-- name: find_activity
-- The open activity or group of a run, or call of a group, that has an id.
select id from tasks where parent_run_id = ? and idempotency_key = ? and kind in (2, 10);

-- name: resolve
-- Write into a closed run what people have done about it, so it is no dead letter and owes nothing any more.
update closed_tasks set resolution = ?, failure_group = null, failure_type = null, owed = null
where id = ?;

-- name: resolutions
-- What people have written into closed runs.
select id, resolution from closed_tasks where id in (values :rows(1)) and resolution is not null;
