-- adopt: give the hold of a token to the claim, with a new TTL and a new fence. The old token then extends and releases
-- nothing, and no transaction with the old fence passes check.sql any more.
--
-- slot, patience, durability  see enter.sql
-- lock_key, old, claim, ttl   the lock; the holder's token; the token that replaces it; the TTL in ms
-- heard, freed                see release.sql
--
-- adopted  the claim is the holder, with the fence
-- holder   otherwise: who is; null: nobody
-- Errors   those of acquire.sql; 55006: a transaction that has passed check.sql has not ended. Nothing has changed.
create or replace function locks.adopt_1(
  slot bigint, patience int, durability text, lock_key bytea, old bytea, claim bytea, ttl bigint, heard bigint, freed text,
  out adopted boolean, out fence bigint, out holder bytea
) language plpgsql as $$
declare
  held locks.lease;
begin
  perform locks.enter_1(slot, patience, durability);
  if exists (select 1 from locks.undone u where u.token = claim) then
    raise exception 'this claim has been given up' using errcode = '55000';
  end if;
  select * into held from locks.lease l where l.key = lock_key for no key update;
  adopted := found and held.token = old and held.expires > clock_timestamp();
  if not adopted then
    if held.expires > clock_timestamp() then
      holder := held.token;
    end if;
    return;
  end if;
  if locks.pinned_1(lock_key) then
    raise exception 'a transaction that has checked the fence of this lock has not ended' using errcode = '55006';
  end if;
  held := locks.grant_1(lock_key, claim, ttl);
  fence := held.fence;
  perform locks.tell_freed_1(heard, freed, old);
end $$;
