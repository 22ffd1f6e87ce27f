-- name: pulse
-- The one pulse row as it was committed last.
select alive_at, hold_until from pulse;

-- name: lock_pulse
-- The one pulse row, unless another server holds it.
with locked as materialized (
    select alive_at, hold_until from pulse for update skip locked
)
select locked.*, clock.now, clock.xid
from (select count(*), now_us() as now, pg_current_xact_id()::text::bigint as xid from locked) as clock
left join locked on true;

-- name: put_pulse
-- Write the one pulse row.
insert into pulse (one, alive_at, hold_until)
values (1, $1, $2)
on conflict (one) do update
set alive_at = excluded.alive_at, hold_until = excluded.hold_until;
