-- schema: the tables and sequences of all locks. This file and those after it are safe to run again, at any time, also
-- while locks are held; and by several at once, each in one transaction. The functions end in the version of the steps: a later version of the library
-- adds functions with another ending, so processes of both versions work next to each other.
do $$
begin
  perform pg_advisory_xact_lock(7021780167); -- one migration at a time; any number would do
  if to_regnamespace('locks') is null then
    create schema locks;
  end if;
end $$;

-- A row is a lock that somebody holds, or held until it expired. A release deletes it.
create table if not exists locks.lease (
  key     bytea       primary key,
  token   bytea       not null, -- the holder's name
  expires timestamptz not null, -- by this server's clock
  fence   bigint      not null  -- the first of the numbers that are reserved for the hold: a multiple of 256
) with (
  fillfactor = 70, -- renewals and direct grants change a row in its page
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000 -- rows come and go
);

-- A row is a process that waits for a lock. It holds the advisory lock "listener" for as long as it can hear of a grant.
create table if not exists locks.queue (
  key      bytea  not null,
  place    bigint generated always as identity, -- first come, first served
  token    bytea  not null,
  listener bigint not null,
  channel  text   not null, -- where it hears of a grant
  ttl      bigint not null, -- of a direct grant, in ms
  numbers  int    not null, -- how many fences it asks for
  primary key (key, place)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A row is a claim that was given up before it was answered. Its request may still arrive, and is then refused.
create table if not exists locks.undone (
  token   bytea       primary key,
  expires timestamptz not null
);

-- The numbers of holds: 256 for each grant (driver.MaxFences). A step draws one while no other step on the same key runs, so
-- each grant of a key has greater numbers than the last one.
create sequence if not exists locks.fence as bigint start 256 increment 256 minvalue 256;

-- The timeline of the server's log on which the last fence was drawn: see timeline.sql. One row.
create table if not exists locks.timeline (
  name text primary key
);
