-- extend: for each lock, if the claim is still the holder, start the TTL again. A lock that has expired is never brought
-- back, and a TTL is never shortened: a request that was stuck on its way may arrive after a later one.
--
-- patience, durability  see enter.sql. The step takes no slot: it changes a row only if that is the claim's own.
-- keys, claims, ttls    the locks; their holders' tokens; the TTLs in ms
--
-- n       the lock's place in keys, from 1
-- kept    it is extended
-- holder  otherwise: who holds it; null: nobody
-- Errors  those of enter.sql: nothing has changed
create or replace function locks.extend_1(patience int, durability text, keys bytea[], claims bytea[], ttls bigint[])
returns table (n bigint, kept boolean, holder bytea) language plpgsql as $$
begin
  perform locks.enter_1(null, patience, durability);
  return query
    with asked as (
      select * from unnest(keys, claims, ttls) with ordinality as a (key, token, ttl, n)
    ), extended as (
      update locks.lease l set expires = greatest(l.expires, clock_timestamp() + a.ttl * interval '1 millisecond')
        from asked a where l.key = a.key and l.token = a.token and l.expires > clock_timestamp() returning a.n
    )
    select a.n, e.n is not null, case when e.n is null then
        (select l.token from locks.lease l where l.key = a.key and l.expires > clock_timestamp() and l.token <> a.token)
      end from asked a left join extended e on e.n = a.n;
end $$;
