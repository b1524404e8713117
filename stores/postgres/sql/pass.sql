-- pass: release, and acquire for the next contender of the same process, behind all who queue already. So two processes
-- with many contenders each take turns, with one request for each turn.
--
-- slot, patience, durability   see enter.sql
-- lock_key, claim, next        the lock; the tokens of the holder and of the next contender
-- ttl … reserve                of the next contender: see acquire.sql
--
-- lost      the claim was not the holder any more, and holder is; null: nobody. Nothing has changed.
-- all else  see acquire.sql
-- Errors    those of acquire.sql: nothing has changed
create or replace function locks.pass_1(
  slot bigint, patience int, durability text, lock_key bytea, claim bytea, next bytea, ttl bigint,
  line_listener bigint, line_channel text, direct bigint, reserve int,
  out lost boolean, out granted boolean, out fence bigint, out holder bytea, out left_us bigint, out at int, out kept boolean,
  out clock bigint
) language plpgsql as $$
declare
  held locks.lease;
begin
  perform locks.enter_1(slot, patience, durability);
  if exists (select 1 from locks.undone u where u.token = next) then
    raise exception 'this claim has been given up' using errcode = '55000';
  end if;
  select * into held from locks.lease l where l.key = lock_key for no key update;
  lost := not found or held.token <> claim or held.expires <= clock_timestamp();
  granted := false;
  if lost then
    if held.expires > clock_timestamp() then
      holder := held.token;
    end if;
    return;
  end if;

  if locks.pinned_1(lock_key) then -- the lock is free when that transaction has ended
    held.expires := clock_timestamp() + interval '50 milliseconds';
    update locks.lease l set expires = clock_timestamp() where l.key = lock_key;
    perform locks.tell_first_1(lock_key, 50);
  else
    held := locks.grant_next_1(lock_key, next, ttl);
    if held.key is null then
      held := locks.grant_1(lock_key, next, ttl);
      granted := true;
    end if;
  end if;

  clock := locks.micros_1(clock_timestamp());
  if granted then
    fence := held.fence;
    return;
  end if;
  holder := held.token;
  select e.at, e.kept into at, kept from locks.enqueue_1(lock_key, next, line_listener, line_channel, direct, reserve) e;
  left_us := greatest(locks.micros_1(held.expires) - clock, 1);
end $$;
