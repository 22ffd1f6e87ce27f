-- What is in the queues, for people. No statement looks at more entries of a lane, or of an index, than its caller
-- allows.

-- name: ready_lanes
-- Lanes of a range that hold ready tasks, by name: each step jumps over a whole lane in the ready index.
with recursive found (lane) as (
    select (
        select lane from tasks where place is not null and lane > :first and lane < :last order by lane limit 1
    )
    union all
    select (
        select lane from tasks where place is not null and lane > found.lane and lane < :last order by lane limit 1
    )
    from found
    where found.lane is not null
)
select lane from found where lane is not null limit :most;

-- name: ready_in_lane
-- How many ready tasks a lane holds, up to a bound, and the last change of the oldest head of its priorities.
select
    (select count(*) from (select 1 from tasks where lane = :lane and place is not null limit :most)),
    (
        select min((
            select updated_at
            from tasks
            where lane = :lane and place is not null and priority = priorities.column1
            order by place, id
            limit 1
        ))
        from (values (1), (2), (3), (4), (5)) as priorities
    );

-- name: leased_in_lanes
-- How many leased tasks each lane of a range holds, up to a bound for all of them.
select lane, count(*)
from (select lane from tasks where session is not null and lane > :first and lane < :last limit :most)
group by lane;

-- name: later_in_lanes
-- How many tasks of each lane and state wait for a time, among those whose alarms go off first; the row without a lane
-- says how many alarms were looked at.
with alarms as materialized (
    select lane, state, place, session from tasks where wake_at is not null order by wake_at limit :most
)
select null, 0, count(*) from alarms
union all
select lane, state, count(*)
from alarms
where place is null and session is null and lane > :first and lane < :last
group by lane, state;

-- name: open_runs
-- Open workflow runs of all namespaces in order of their workflow ids, up to a bound: whose, since when, and how they go.
select namespace, type, created_at, event_count, failures, failure is not null, search_attributes
from tasks
where namespace > '' and workflow_id is not null and kind = 3
order by namespace, workflow_id, id
limit :most;
