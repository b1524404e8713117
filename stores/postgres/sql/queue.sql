-- queue: who waits for a lock, first come, first served. All of it runs within a step of the key.
--
-- A process hears one of two messages on the channel of its place:
--
--   grant fence numbers ttl clock token   it holds the lock, for ttl ms from clock (µs since 1970); the token is in hexadecimal
--   next ms                               it is the first now; the holder has ms, unless it extends

-- Notifies the first in the queue that it is the first now. Each step that takes the first place out calls it.
create or replace function locks.tell_first_1(lock_key bytea, ms bigint) returns void language plpgsql as $$
declare
  first text;
begin
  select q.channel into first from locks.queue q where q.key = lock_key order by q.place limit 1;
  if found then
    perform pg_notify(first, 'next ' || ms);
  end if;
end $$;

-- Gives a claim its place, if it has none yet. It may listen elsewhere than when it asked last.
create or replace function locks.enqueue_1(
  lock_key bytea, claim bytea, line_listener bigint, line_channel text, direct bigint, reserve int,
  out at int, out kept boolean
) language plpgsql as $$
declare
  mine bigint;
begin
  update locks.queue q set listener = line_listener, channel = line_channel
    where q.key = lock_key and q.token = claim returning q.place into mine;
  kept := found;
  if not kept then
    insert into locks.queue (key, token, listener, channel, ttl, numbers)
      values (lock_key, claim, line_listener, line_channel, direct, reserve) returning place into mine;
  end if;
  select count(*) into at from locks.queue q where q.key = lock_key and q.place <= mine;
end $$;

-- Makes a claim the holder.
create or replace function locks.grant_1(lock_key bytea, claim bytea, ttl bigint, out lease locks.lease) language plpgsql as $$
begin
  perform locks.timeline_1();
  insert into locks.lease as l (key, token, expires, fence)
    values (lock_key, claim, clock_timestamp() + ttl * interval '1 millisecond', nextval('locks.fence'))
    on conflict (key) do update set token = excluded.token, expires = excluded.expires, fence = excluded.fence
    returning l.* into lease;
end $$;

-- The direct grant: makes the first in the queue the holder, in the step that frees the lock. It passes over those that
-- have died: their connection to listen has ended, and with it their advisory lock. It stops at the place of the caller, who
-- becomes the holder then, for caller_ttl, and gives that place up.
--
-- Returns the new holder's row; null: nobody waits before the caller
create or replace function locks.grant_next_1(lock_key bytea, caller bytea, caller_ttl bigint, out successor locks.lease)
language plpgsql as $$
declare
  first locks.queue;
begin
  loop
    select * into first from locks.queue q where q.key = lock_key order by q.place limit 1;
    exit when not found;
    delete from locks.queue q where q.key = lock_key and q.place = first.place;
    if first.token = caller then
      perform locks.tell_first_1(lock_key, caller_ttl);
      exit;
    end if;
    continue when pg_try_advisory_xact_lock_shared(first.listener); -- nobody has it: the process has died
    successor := locks.grant_1(lock_key, first.token, first.ttl);
    perform pg_notify(first.channel, format('grant %s %s %s %s %s', successor.fence, first.numbers, first.ttl,
      locks.micros_1(successor.expires) - first.ttl * 1000, encode(first.token, 'hex')));
    perform locks.tell_first_1(lock_key, first.ttl);
    exit;
  end loop;
end $$;

-- Notifies those who wait for a key without a place in its queue, if there are any: they hold the advisory lock "heard".
create or replace function locks.tell_freed_1(heard bigint, freed text, claim bytea) returns void language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(heard) then
    perform pg_notify(freed, encode(claim, 'hex'));
  end if;
end $$;

-- A time in µs since 1970.
create or replace function locks.micros_1(at timestamptz) returns bigint language sql stable as $$
  select (extract(epoch from at) * 1000000)::bigint
$$;
