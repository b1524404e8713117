-- inspect: the holder, its remaining TTL, its fence, and the queue. Changes nothing.
--
-- patience  see enter.sql
-- lock_key  the lock
--
-- holder, left_us, fence  null: nobody holds the lock; µs; the first of the hold's numbers
-- waiting                 the tokens in the queue, in its order
-- Errors                  those of enter.sql
create or replace function locks.inspect_1(
  patience int, lock_key bytea, out holder bytea, out left_us bigint, out fence bigint, out waiting bytea[]
) language plpgsql as $$
begin
  perform locks.enter_1(null, patience, '');
  select l.token, locks.micros_1(l.expires) - locks.micros_1(clock_timestamp()), l.fence into holder, left_us, fence
    from locks.lease l where l.key = lock_key and l.expires > clock_timestamp();
  select coalesce(array_agg(q.token order by q.place), '{}') into waiting from locks.queue q where q.key = lock_key;
end $$;
