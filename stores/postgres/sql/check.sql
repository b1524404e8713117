-- check: transactional fencing. Called in a transaction of the user, it says whether a hold still has the lock, and keeps
-- it so until that transaction ends: nobody else gets the lock before, even if it expires. Renewals go on.
--
-- lock_key, hold_fence  the lock; the number of the hold
--
-- held    the hold has the lock
-- holder  otherwise: who has it; null: nobody
-- Errors  25006: the server is a standby
create or replace function locks.check_1(lock_key bytea, hold_fence bigint, out held boolean, out holder bytea) language plpgsql as $$
begin
  perform 1 from locks.lease l
    where l.key = lock_key and l.fence = hold_fence - hold_fence % 256 and l.expires > clock_timestamp()
    for key share; -- a step that is taking the lock away comes first; then the row is another's
  held := found;
  if not held then
    select l.token into holder from locks.lease l where l.key = lock_key and l.expires > clock_timestamp();
  end if;
end $$;
