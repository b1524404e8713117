-- timeline: what a promotion does to fences. A promoted standby may have forgotten the last grants of the old primary, and with
-- them how far the sequence was. Each promotion begins a new timeline of the server's log. The first grant on a new timeline
-- moves the sequence forward by more than could have been forgotten, once for each promotion: the standby may have forgotten
-- such a move, too.
--
-- A session looks once: no session of a primary outlives its timeline. A server that does not show its timeline is trusted to
-- forget nothing.
create or replace function locks.timeline_1() returns void language plpgsql as $$
declare
  looked  text := format('lockstrategies.fence_%s', 'locks.fence'::regclass::oid);
  present text;
  before  text;
  moves   bigint;
begin
  if current_setting(looked, true) = 'yes' then
    return;
  end if;
  perform set_config(looked, 'yes', false); -- it ends with the session, or with this transaction if that is rolled back
  begin
    present := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  exception when others then
    return;
  end;
  if not exists (select 1 from locks.timeline t where t.name = present) then
    perform pg_advisory_xact_lock(7021780168); -- one moves the sequence, and the others wait for that
    if not exists (select 1 from locks.timeline t where t.name = present) then
      select t.name into before from locks.timeline t;
      if found then
        moves := greatest(('x' || present)::bit(32)::bigint - ('x' || before)::bit(32)::bigint, 1);
        perform setval('locks.fence', nextval('locks.fence') + (moves * 256 << 24));
      end if;
      delete from locks.timeline;
      insert into locks.timeline (name) values (present);
    end if;
  end if;
end $$;

do $$
begin
  perform locks.timeline_1();
end $$;
