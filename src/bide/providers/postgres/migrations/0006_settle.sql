-- Settling. Who has a token is running; that is not asked for in so many words, since an index of what is running
-- would be read instead of the rows by their numbers.

-- Of these tokens, those that live; their items are locked until the transaction ends.
CREATE FUNCTION bide.hold(_seqs bigint[], _nonces text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT w.seq || ':' || w.token FROM unnest(_seqs, _nonces) AS given(seq, nonce)
    JOIN bide.work_items AS w ON w.seq = given.seq
    WHERE w.token = given.nonce AND w.locked_until > bide.now_ms()
    FOR UPDATE OF w;
END $$;

-- Prolong the locks of tokens that live; these tokens.
CREATE FUNCTION bide.renew(_seqs bigint[], _nonces text[], _lock_ms bigint) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
BEGIN
    RETURN QUERY
    UPDATE bide.work_items AS w SET locked_until = _now + _lock_ms, lock_ms = _lock_ms
    FROM unnest(_seqs, _nonces) AS given(seq, nonce)
    WHERE w.seq = given.seq AND w.token = given.nonce AND w.locked_until > _now
    RETURNING w.seq || ':' || w.token;
END $$;

-- Give back what a fetch took and still holds, as if it had not been fetched; how many.
CREATE FUNCTION bide.release(_fetch_token text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
    _count integer;
    _queues text[];
    _keys text[];
BEGIN
    WITH released AS (
        UPDATE bide.work_items SET state = 'ready', attempts = attempts - 1, token = NULL, fetch_token = NULL,
            locked_until = NULL, lock_ms = NULL
        WHERE state = 'running' AND fetch_token = _fetch_token AND locked_until > _now
        RETURNING queue, order_key
    )
    SELECT count(*), array_agg(queue), array_agg(order_key) INTO _count, _queues, _keys FROM released;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN _count;
END $$;

-- Remove acknowledged items that nobody may ask for again: no result, no key, no delivery. They are given by fetch, the
-- numbers of each as text with commas between. Those that went, and whether work may have become eligible.
CREATE FUNCTION bide.remove_acked(
    _nonces text[], _lists text[], _now bigint, OUT seqs bigint[], OUT nonces text[], OUT wakes boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _queues text[];
    _keys text[];
BEGIN
    WITH gone AS (
        DELETE FROM bide.work_items AS w USING unnest(_nonces, _lists) AS g(nonce, list)
        WHERE w.seq = ANY (string_to_array(g.list, ',')::bigint[]) AND w.token = g.nonce AND w.locked_until > _now
            AND w.keep_ms IS NULL AND w.key IS NULL AND w.queue <> 'deliveries'
        RETURNING w.seq, w.token, w.queue, w.order_key, w.limited
    )
    SELECT array_agg(g.seq), array_agg(g.token), array_agg(g.queue) FILTER (WHERE g.order_key IS NOT NULL),
        array_agg(g.order_key) FILTER (WHERE g.order_key IS NOT NULL), coalesce(bool_or(g.limited), false)
    INTO seqs, nonces, _queues, _keys, wakes FROM gone AS g;
    IF _keys IS NOT NULL THEN
        PERFORM bide.line_up(_queues, _keys, _now);
        wakes := true;
    END IF;
END $$;

-- Settle what stays: the tokens that were dead, and whether work may have become eligible. A kind that is NULL is an ack.
CREATE FUNCTION bide.settle_kept(
    _seqs bigint[], _nonces text[], _results text[], _kinds text[], _delays bigint[], _errors text[], _counted boolean[],
    _now bigint, OUT stale text[], OUT wakes boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _settled record;
BEGIN
    WITH given AS (
        SELECT * FROM unnest(_seqs, _nonces, _results, _kinds, _delays, _errors, _counted)
            AS given(seq, nonce, result, kind, delay, error, counted)
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
        WHERE w.seq = g.seq AND w.token = g.nonce AND w.locked_until > _now
        RETURNING g.seq, g.nonce, w.queue, w.order_key, w.limited, w.state
    )
    SELECT array_agg(s.seq || ':' || s.nonce) AS tokens,
        array_agg(s.queue) FILTER (WHERE s.order_key IS NOT NULL) AS queues,
        array_agg(s.order_key) FILTER (WHERE s.order_key IS NOT NULL) AS keys,
        coalesce(bool_or(s.limited OR s.order_key IS NOT NULL OR s.state IN ('ready', 'waiting')), false) AS wakes
    INTO _settled FROM settled AS s;
    IF _settled.keys IS NOT NULL THEN
        PERFORM bide.line_up(_settled.queues, _settled.keys, _now);
    END IF;
    wakes := _settled.wakes;
    stale := ARRAY(SELECT g.seq || ':' || g.nonce FROM unnest(_seqs, _nonces) AS g(seq, nonce)
                   WHERE g.seq || ':' || g.nonce <> ALL (coalesce(_settled.tokens, '{}')));
END $$;

-- Acknowledge items without results, given by fetch; how many they are together.
CREATE FUNCTION bide.ack(_nonces text[], _lists text[], _wanted integer, OUT stale text[], OUT wakes boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
    _gone record;
    _rest record;
BEGIN
    SELECT * INTO _gone FROM bide.remove_acked(_nonces, _lists, _now);
    wakes := _gone.wakes;
    stale := '{}';
    IF coalesce(cardinality(_gone.seqs), 0) < _wanted THEN
        SELECT array_agg(seq::bigint) AS seqs, array_agg(nonce) AS nonces INTO _rest
        FROM unnest(_nonces, _lists) AS g(nonce, list) CROSS JOIN LATERAL unnest(string_to_array(g.list, ',')) AS seq
        WHERE NOT EXISTS (SELECT 1 FROM unnest(_gone.seqs, _gone.nonces) AS went(seq, nonce)
                          WHERE went.seq = seq::bigint AND went.nonce = g.nonce);
        SELECT k.stale, k.wakes OR _gone.wakes INTO stale, wakes
        FROM bide.settle_kept(_rest.seqs, _rest.nonces, '{}', '{}', '{}', '{}', '{}', _now) AS k;
    END IF;
END $$;

-- Settle in any way, by token, each token once.
CREATE FUNCTION bide.settle(
    _seqs bigint[], _nonces text[], _results text[], _kinds text[], _delays bigint[], _errors text[], _counted boolean[],
    OUT stale text[], OUT wakes boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
    _gone record;
BEGIN
    SELECT r.seqs, r.nonces, r.wakes INTO _gone
    FROM (SELECT coalesce(array_agg(g.nonce), '{}') AS nonces, coalesce(array_agg(g.seq::text), '{}') AS lists
          FROM unnest(_seqs, _nonces, _kinds) AS g(seq, nonce, kind) WHERE g.kind IS NULL) AS acks
    CROSS JOIN LATERAL bide.remove_acked(acks.nonces, acks.lists, _now) AS r;
    SELECT ARRAY(SELECT token FROM unnest(k.stale) AS token
                 WHERE NOT EXISTS (SELECT 1 FROM unnest(_gone.seqs, _gone.nonces) AS went(seq, nonce)
                                   WHERE went.seq || ':' || went.nonce = token)), k.wakes OR _gone.wakes
    INTO stale, wakes
    FROM bide.settle_kept(_seqs, _nonces, _results, _kinds, _delays, _errors, _counted, _now) AS k;
END $$;
