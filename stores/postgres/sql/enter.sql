-- enter: how each step begins. Steps on one key run one after the other, and each statement of a step sees what all steps
-- before it have done.
--
-- slot        the advisory lock of the key; null: the step takes none
-- patience    for how many ms the step waits for others in the server
-- durability  synchronous_commit of this step; empty: that of the session
--
-- Errors      25006: the server is a standby, whose answer may be out of date; 0A000: the isolation level; 55P03: the time is over
create or replace function locks.enter_1(slot bigint, patience int, durability text) returns void language plpgsql as $$
begin
  if pg_is_in_recovery() then
    raise exception 'this server is a standby, and locks need a primary' using errcode = '25006';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then -- a statement would see what was before it had the slot
    raise exception 'locks need the isolation level read committed, and this session has %', current_setting('transaction_isolation')
      using errcode = '0A000', hint = 'set default_transaction_isolation to read committed for the pool of locks';
  end if;
  if durability <> '' then
    perform set_config('synchronous_commit', durability, true);
  end if;
  perform set_config('lock_timeout', patience::text, true);
  if slot is not null then
    perform pg_advisory_xact_lock(slot);
  end if;
end $$;
