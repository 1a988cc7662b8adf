-- A lock that expired holds nothing, also before a fetch gives its item back; and what is said of a life that is over.

-- Bury items whose whole life is over before anybody had them; how many.
CREATE OR REPLACE FUNCTION bide.bury_past_life(_now bigint, _limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _queues text[];
    _keys text[];
    _count integer;
BEGIN
    WITH past AS MATERIALIZED (
        SELECT seq FROM bide.work_items
        WHERE expires_at IS NOT NULL AND state IN ('ready', 'waiting', 'blocked') AND expires_at <= _now
        ORDER BY expires_at LIMIT _limit FOR UPDATE SKIP LOCKED
    ), buried AS (
        UPDATE bide.work_items AS w SET state = 'dead', ended_at = _now,
            error = bide.because(
                CASE queue WHEN 'deliveries' THEN 'not delivered within ' ELSE 'not done within ' END
                    || bide.duration_text(within_ms), error)
        FROM past WHERE w.seq = past.seq
        RETURNING w.queue, w.order_key
    )
    SELECT count(*), array_agg(queue) FILTER (WHERE order_key IS NOT NULL),
        array_agg(order_key) FILTER (WHERE order_key IS NOT NULL)
    INTO _count, _queues, _keys FROM buried;
    IF _keys IS NOT NULL THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN _count;
END $$;

-- Bury items that wait, or whose lock expired; their ids.
CREATE OR REPLACE FUNCTION bide.discard(_ids text[], _reason text) RETURNS SETOF text LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    _now bigint := bide.now_ms();
    _buried text[];
    _queues text[];
    _keys text[];
BEGIN
    WITH buried AS (
        UPDATE bide.work_items SET state = 'dead', ended_at = _now, error = _reason,
            token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
        WHERE id = ANY (_ids)
            AND (state IN ('ready', 'waiting', 'blocked') OR (state = 'running' AND locked_until <= _now))
        RETURNING id, queue, order_key
    )
    SELECT array_agg(id), array_agg(queue), array_agg(order_key) INTO _buried, _queues, _keys FROM buried;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN QUERY SELECT unnest(_buried);
END $$;

-- Remove items of a queue for good, up to a limit; how many, and whether one that was behind them may go on. Of what is
-- running only those go, with what is ready, whose lock expired.
CREATE OR REPLACE FUNCTION bide.purge(_queue text, _states text[], _limit integer, OUT count integer, OUT wakes boolean)
LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    _now bigint := bide.now_ms();
    _queues text[];
    _keys text[];
BEGIN
    WITH chosen AS MATERIALIZED (
        SELECT w.seq FROM bide.work_items AS w
        WHERE w.queue = _queue AND CASE w.state
            WHEN 'running' THEN 'ready' = ANY (_states) AND w.locked_until <= _now ELSE w.state = ANY (_states) END
        ORDER BY w.seq LIMIT _limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM bide.work_items AS w USING chosen WHERE w.seq = chosen.seq RETURNING w.queue, w.order_key
    )
    SELECT count(*), array_agg(gone.queue) FILTER (WHERE order_key IS NOT NULL),
        array_agg(order_key) FILTER (WHERE order_key IS NOT NULL)
    INTO count, _queues, _keys FROM gone;
    PERFORM bide.line_up(_queues, _keys, _now) WHERE _keys IS NOT NULL;
    wakes := _keys IS NOT NULL;
END $$;
