-- acquire: make the claim the holder, if nobody holds the lock and nobody waits before it. Otherwise it takes its place in
-- the queue, if it has a line: a channel on which it hears of a grant.
--
-- slot, patience, durability   see enter.sql
-- lock_key, claim              the lock; the token of the claim
-- ttl                          in ms
-- line_listener, line_channel  where the claim hears of a grant, see queue.sql; an empty channel: it takes no place
-- direct, reserve              the TTL of a direct grant in ms; how many fences the claim asks for
-- sweep                        whether to delete a few rows that nobody needs: see sweep.sql
--
-- granted       the claim is the holder, with 256 numbers from fence on
-- holder, left  otherwise: who is, and for how many µs
-- at, kept      and the claim's place in the queue, from 1, or 0; and whether it had a place before
-- clock         the server's time, in µs since 1970
-- Errors        those of enter.sql; 55000: the claim has been undone. Nothing has changed.
create or replace function locks.acquire_1(
  slot bigint, patience int, durability text, lock_key bytea, claim bytea, ttl bigint,
  line_listener bigint, line_channel text, direct bigint, reserve int, sweep boolean,
  out granted boolean, out fence bigint, out holder bytea, out left_us bigint, out at int, out kept boolean, out clock bigint
) language plpgsql as $$
declare
  held  locks.lease;
  ended boolean; -- nobody holds the lock
begin
  perform locks.enter_1(slot, patience, durability);
  if exists (select 1 from locks.undone u where u.token = claim) then
    raise exception 'this claim has been given up' using errcode = '55000';
  end if;
  select * into held from locks.lease l where l.key = lock_key;
  ended := not found;
  if not ended and held.expires <= clock_timestamp() then
    select * into held from locks.lease l where l.key = lock_key for no key update;
    ended := not found or held.expires <= clock_timestamp(); -- a renewal may have come first
    if ended and found and locks.pinned_1(lock_key) then
      ended := false;
      held.expires := clock_timestamp() + interval '50 milliseconds'; -- by then its transaction may have ended
    end if;
  end if;

  if ended then
    held := locks.grant_next_1(lock_key, claim, ttl);
    if held.key is null then
      held := locks.grant_1(lock_key, claim, ttl);
      granted := true;
    end if;
  elsif held.token = claim then -- it was granted the lock while it queued, or the reply was lost
    update locks.lease l set expires = greatest(l.expires, clock_timestamp() + ttl * interval '1 millisecond')
      where l.key = lock_key;
    granted := true;
  end if;

  clock := locks.micros_1(clock_timestamp());
  if granted then
    fence := held.fence;
  else
    granted := false;
    holder := held.token;
    at := 0;
    kept := false;
    if line_channel <> '' then
      select e.at, e.kept into at, kept from locks.enqueue_1(lock_key, claim, line_listener, line_channel, direct, reserve) e;
    end if;
    left_us := greatest(locks.micros_1(held.expires) - clock, 1);
  end if;
  if sweep then -- last: with rows of others in hand, this step must wait for nobody
    perform locks.sweep_1();
  end if;
end $$;
