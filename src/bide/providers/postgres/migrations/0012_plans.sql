-- Plans that stay good, as for the functions before: every statement has an index made for it.
DROP FUNCTION bide.choose(text[], text[], integer[], integer, bigint);

DO $$
DECLARE
    _function regprocedure;
    _setting text;
BEGIN
    FOR _function IN
        SELECT p.oid::regprocedure FROM pg_proc AS p
        WHERE p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'bide.meta'::regclass)
            AND p.proname IN ('enqueue', 'fetch', 'next_eligible_in', 'hold', 'ack', 'settle', 'renew', 'begin_anew', 'purge', 'prune',
                              'occurred', 'occur')
    LOOP
        FOREACH _setting IN ARRAY ARRAY['plan_cache_mode = force_generic_plan', 'enable_seqscan = off',
                                        'enable_bitmapscan = off', 'enable_hashjoin = off',
                                        'enable_mergejoin = off', 'jit = off']
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', _function, _setting);
        END LOOP;
    END LOOP;
END $$;
