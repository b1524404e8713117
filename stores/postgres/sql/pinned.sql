-- pinned: whether a transaction of a user has checked the fence of this lease (check.sql) and has not ended. Until then nobody
-- else may get the lock, so the step must not change the row's holder. Otherwise the step has the row FOR UPDATE, as long as it runs: a
-- check that comes meanwhile waits, and then sees the new holder.
-- The step has the row FOR NO KEY UPDATE already, which waits for a renewal under way.
create or replace function locks.pinned_1(lock_key bytea) returns boolean language plpgsql as $$
begin
  perform 1 from locks.lease l where l.key = lock_key for update skip locked;
  return not found;
end $$;
