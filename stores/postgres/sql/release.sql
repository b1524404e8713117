-- release: if the claim is the holder, make the first in the queue the holder, or delete the row. An undo also gives up the
-- claim's place, and sees to it that no request of the claim has an effect any more.
--
-- slot, patience, durability  see enter.sql
-- lock_key, claim             the lock; the token of the claim
-- heard, freed                the advisory lock of those who wait without a place, and their channel
-- undo                        whether it is an undo
-- late                        the claim has never been answered, so its request may still arrive
--
-- released  the claim was the holder
-- holder    otherwise: who is; null: nobody
-- Errors    those of enter.sql: nothing has changed
create or replace function locks.release_1(
  slot bigint, patience int, durability text, lock_key bytea, claim bytea, heard bigint, freed text, undo boolean, late boolean,
  out released boolean, out holder bytea
) language plpgsql as $$
declare
  held  locks.lease;
  mine  bigint;
  first boolean := false; -- the claim was the first in the queue
begin
  perform locks.enter_1(slot, patience, durability);
  if undo then
    delete from locks.queue q where q.key = lock_key and q.token = claim returning q.place into mine;
    first := found and not exists (select 1 from locks.queue q where q.key = lock_key and q.place < mine);
    if late then
      insert into locks.undone (token, expires) values (claim, clock_timestamp() + interval '10 minutes') on conflict do nothing;
    end if;
  end if;

  select * into held from locks.lease l where l.key = lock_key for no key update;
  released := found and held.token = claim and held.expires > clock_timestamp();
  if not released then
    if found and held.expires > clock_timestamp() then
      holder := held.token;
    end if;
    if first then
      perform locks.tell_first_1(lock_key, 1); -- it asks how long the holder has
    end if;
  elsif locks.pinned_1(lock_key) then -- the lock is free when that transaction has ended
    update locks.lease l set expires = clock_timestamp() where l.key = lock_key;
    perform locks.tell_first_1(lock_key, 50);
    perform locks.tell_freed_1(heard, freed, claim);
  elsif locks.grant_next_1(lock_key, null, 0) is null then
    delete from locks.lease l where l.key = lock_key;
    perform locks.tell_freed_1(heard, freed, claim);
  end if;
end $$;
