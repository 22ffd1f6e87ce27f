-- name: prepare_migrations
-- A place for the names of those applied.
create table if not exists schema_migrations (
    name text primary key,
    applied_at integer not null
) strict, without rowid;

-- name: has_migrations
-- Whether any migration ran.
select exists (select 1 from sqlite_schema where type = 'table' and name = 'schema_migrations');

-- name: migrations
-- Those applied.
select name from schema_migrations;

-- name: add_migration
-- One was applied.
insert into schema_migrations (name, applied_at) values (?, ?);
