-- name: take_room
-- A row as large as the write-ahead log may become.
create table if not exists room (filler blob);
insert into room values (zeroblob(?));

-- name: leave_room
-- What was taken is free for other rows.
drop table if exists room;
