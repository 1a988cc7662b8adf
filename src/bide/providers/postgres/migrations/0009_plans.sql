-- Plans that stay good while tables grow from nothing to millions of rows between two looks of the statistics: every
-- statement has an index made for it, reads it in order, looks up what it joins row by row (they are few), and is
-- planned once for each connection. What these functions call is planned as they are.
DO $$
DECLARE
    _function regprocedure;
    _setting text;
BEGIN
    FOR _function IN
        SELECT p.oid::regprocedure FROM pg_proc AS p
        WHERE p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'bide.meta'::regclass)
            AND p.proname IN ('enqueue', 'fetch', 'next_eligible_in', 'hold', 'ack', 'settle', 'renew', 'release',
                              'begin_anew', 'discard', 'purge', 'prune', 'occurred', 'occur', 'end_subscriptions',
                              'claim_polls', 'record_unchanged', 'record_failed')
    LOOP
        FOREACH _setting IN ARRAY ARRAY['plan_cache_mode = force_generic_plan', 'enable_seqscan = off',
                                        'enable_bitmapscan = off', 'enable_hashjoin = off',
                                        'enable_mergejoin = off', 'jit = off']
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', _function, _setting);
        END LOOP;
    END LOOP;
END $$;
