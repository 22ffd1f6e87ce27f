-- Circuit breakers of task types: how each stands, packed, with its limit; and why something happened, of events.

alter table limits add column circuit bytea;

alter table outbox add column reason text not null default '';
