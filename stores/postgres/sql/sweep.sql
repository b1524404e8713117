-- sweep: delete what the dead have left in one page of each table, chosen at random. So it costs the same however large the
-- tables are. Some acquires call it. It waits for nobody.
create or replace function locks.sweep_1() returns void language plpgsql as $$
declare
  a tid;
  b tid;
begin
  select p.a, p.b into a, b from locks.page_1('locks.lease') p;
  delete from locks.lease where ctid = any (array(
    select l.ctid from locks.lease l where l.ctid >= a and l.ctid < b and l.expires < clock_timestamp() - interval '1 second'
      for update skip locked)); -- a transaction that has passed check.sql keeps its row
  select p.a, p.b into a, b from locks.page_1('locks.queue') p;
  delete from locks.queue where ctid = any (array(
    select q.ctid from locks.queue q where q.ctid >= a and q.ctid < b and pg_try_advisory_xact_lock_shared(q.listener)
      for update skip locked));
  select p.a, p.b into a, b from locks.page_1('locks.undone') p;
  delete from locks.undone where ctid = any (array(
    select u.ctid from locks.undone u where u.ctid >= a and u.ctid < b and u.expires < clock_timestamp()
      for update skip locked));
end $$;

-- One page of a table: rows have a ctid from a on, less than b.
create or replace function locks.page_1(of_table regclass, out a tid, out b tid) language plpgsql as $$
declare
  page bigint := floor(random() * (pg_relation_size(of_table) / current_setting('block_size')::bigint));
begin
  a := format('(%s,0)', page)::tid;
  b := format('(%s,0)', page + 1)::tid;
end $$;
