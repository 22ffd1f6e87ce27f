-- name: pulse
-- The one pulse row.
select alive_at, hold_until from pulse;

-- name: lock_pulse
-- The one pulse row, and the highest time that the clock of this database is known to have shown.
select alive_at, hold_until, clock from pulse;

-- name: put_pulse
-- Write the one pulse row; the clock's mark only rises.
update pulse set alive_at = ?, hold_until = ?, clock = max(clock, ?);
