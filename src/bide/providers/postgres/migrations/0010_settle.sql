-- Settling, and giving back.

DROP FUNCTION bide.settle(bigint[], text[], text[], bigint[], text[], boolean[]);

-- Of these tokens, those that live; their items are locked until the transaction ends.
CREATE FUNCTION bide.hold(_seqs bigint[], _tokens text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT w.token FROM unnest(_seqs, _tokens) AS given(seq, token)
    JOIN bide.work_items AS w ON w.seq = given.seq
    WHERE w.token = given.token AND w.state = 'running' AND w.locked_until > bide.now_ms()
    FOR UPDATE OF w;
END $$;

-- Settle by token, each token once: the tokens that were dead, and whether work may have become eligible.
-- _kinds none: all are acks. An ack leaves nothing behind but what somebody may ask for again: a result, a key, a
-- delivery.
CREATE FUNCTION bide.settle(
    _seqs bigint[], _tokens text[], _results text[], _kinds text[], _delays bigint[], _errors text[], _counted boolean[],
    OUT stale text[], OUT wakes boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _gone text[];
    _settled text[];
    _queues text[];
    _keys text[];
    _more_queues text[];
    _more_keys text[];
    _more_wakes boolean;
BEGIN
    WITH gone AS (
        DELETE FROM bide.work_items AS w
        USING unnest(_seqs, _tokens, _kinds) AS g(seq, token, kind)
        WHERE w.seq = g.seq AND w.token = g.token AND w.state = 'running' AND w.locked_until > _now
            AND g.kind IS NULL AND w.keep_ms IS NULL AND w.key IS NULL AND w.queue <> 'deliveries'
        RETURNING w.token, w.queue, w.order_key, w.limited
    )
    SELECT array_agg(token), array_agg(queue) FILTER (WHERE order_key IS NOT NULL),
        array_agg(order_key) FILTER (WHERE order_key IS NOT NULL), coalesce(bool_or(limited OR order_key IS NOT NULL), false)
    INTO _gone, _queues, _keys, wakes FROM gone;
    IF cardinality(_gone) = cardinality(_tokens) THEN
        PERFORM bide.line_up(_queues, _keys, _now) WHERE _keys IS NOT NULL;
        stale := '{}';
        RETURN;
    END IF;
    WITH given AS (
        SELECT * FROM unnest(_seqs, _tokens, _results, _kinds, _delays, _errors, _counted)
            AS given(seq, token, result, kind, delay, error, counted)
    ), settled AS (
        UPDATE bide.work_items AS w SET
            state = CASE
                WHEN g.kind IS NULL THEN 'done'
                WHEN g.kind = 'bury' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended THEN 'dead'
                WHEN g.delay > 0 THEN 'waiting' ELSE 'ready' END,
            ended_at = CASE
                WHEN g.kind IS DISTINCT FROM 'abandon' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended
                THEN _now END,
            remove_at = CASE
                WHEN g.kind IS NULL AND w.queue <> 'deliveries'
                THEN _now + greatest(w.keep_ms, CASE WHEN w.key IS NOT NULL THEN 86400000 END) END,
            result = CASE WHEN g.kind IS NULL AND w.keep_ms IS NOT NULL THEN g.result END,
            error = CASE
                WHEN g.kind IS DISTINCT FROM 'abandon' THEN g.error
                WHEN g.counted AND w.attempts >= w.max_attempts THEN
                    bide.gave_up(w.attempts, coalesce(g.error, w.error))
                WHEN o.ended THEN bide.because('the subscription ended', o.reason)
                ELSE coalesce(g.error, w.error) END,
            attempts = CASE WHEN g.kind = 'abandon' AND NOT g.counted THEN w.attempts - 1 ELSE w.attempts END,
            given_back = CASE WHEN g.kind = 'abandon' AND NOT g.counted THEN w.given_back + 1 ELSE w.given_back END,
            visible_at = CASE
                WHEN g.kind IS DISTINCT FROM 'abandon' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended
                THEN w.visible_at ELSE _now + g.delay END,
            rank = CASE WHEN g.kind = 'abandon' THEN _now + g.delay - w.priority * 60000 ELSE w.rank END,
            hold_ms = CASE WHEN g.kind = 'abandon' THEN g.delay ELSE w.hold_ms END,
            token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
        FROM given AS g
        JOIN bide.work_items AS own ON own.seq = g.seq
        LEFT JOIN LATERAL (
            SELECT true AS ended, s.ended_reason AS reason FROM bide.subscriptions AS s
            WHERE g.kind = 'abandon' AND own.queue = 'deliveries' AND s.name = own.name AND s.ended_at IS NOT NULL
        ) AS o ON true
        WHERE w.seq = g.seq AND w.token = g.token AND w.state = 'running' AND w.locked_until > _now
        RETURNING g.token, w.queue, w.order_key, w.limited, w.state
    )
    SELECT array_agg(token), array_agg(queue) FILTER (WHERE order_key IS NOT NULL),
        array_agg(order_key) FILTER (WHERE order_key IS NOT NULL),
        coalesce(bool_or(limited OR order_key IS NOT NULL OR state IN ('ready', 'waiting')), false)
    INTO _settled, _more_queues, _more_keys, _more_wakes FROM settled;
    PERFORM bide.line_up(_queues || _more_queues, _keys || _more_keys, _now) WHERE _keys || _more_keys IS NOT NULL;
    wakes := wakes OR _more_wakes;
    stale := ARRAY(SELECT token FROM unnest(_tokens) AS g(token) WHERE token <> ALL (coalesce(_gone || _settled, '{}')));
END $$;
