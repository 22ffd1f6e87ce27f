-- What is in the queues, for people. No statement looks at more live entries of a lane, or of an index, than its caller
-- allows.

-- name: ready_lanes
-- Lanes of a range that hold ready tasks, by name: each step jumps over a whole lane in the ready index.
with recursive found (lane) as (
    select (select lane from tasks where place is not null and lane > $1 and lane < $2 order by lane limit 1)
    union all
    select (select lane from tasks where place is not null and lane > found.lane and lane < $2 order by lane limit 1)
    from found
    where found.lane is not null
)
select lane from found where lane is not null limit $3;

-- name: ready_in_lane
-- How many ready tasks each lane holds, up to a bound, and the last change of the oldest head of its priorities.
select
    lanes.lane,
    (select count(*) from (select from tasks where tasks.lane = lanes.lane and place is not null limit $2) as counted),
    (
        select min(head.updated_at)
        from generate_series(1, 5) as priorities (priority)
        cross join lateral (
            select updated_at
            from tasks
            where tasks.lane = lanes.lane and place is not null and tasks.priority = priorities.priority
            order by place, id
            limit 1
        ) as head
    )
from unnest($1::text[]) as lanes (lane);

-- name: leased_in_lanes
-- How many leased tasks each lane of a range holds, up to a bound for all of them.
select lane, count(*)
from (select lane from tasks where session is not null and lane > $1 and lane < $2 limit $3) as leased
group by lane;

-- name: later_in_lanes
-- How many tasks of each lane and state wait for a time, among those whose alarms go off first; the row without a lane
-- says how many alarms were looked at.
with alarms as materialized (
    select lane, state, place, session from tasks where wake_at is not null order by wake_at limit $3
)
select null, 0::smallint, count(*) from alarms
union all
select lane, state, count(*)
from alarms
where place is null and session is null and lane > $1 and lane < $2
group by lane, state;

-- name: open_runs
-- Open workflow runs of all namespaces in order of their workflow ids, up to a bound: whose, since when, and how they go.
select namespace, type, created_at, event_count, failures, failure is not null, search_attributes
from tasks
where workflow_id is not null and kind = 3
order by namespace, workflow_id, id
limit $1;
