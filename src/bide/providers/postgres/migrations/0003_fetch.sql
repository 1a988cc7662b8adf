-- Taking work, and settling it.

-- Which of the eligible items a fetch takes: urgent and old ones first, queues in turn, names within their limits,
-- and an item that killed workers alone. Nothing is locked yet. Queues are given in this turn's order.
CREATE FUNCTION bide.choose(_queues text[], _names text[], _mosts integer[], _limit integer, _now bigint)
RETURNS TABLE (queue text, name text, count integer, alone bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    _found record;
    _left jsonb;
    _taken integer := 0;
    _progress boolean := true;
    _turn integer;
    _at integer;
    _ends integer[];
    _places integer[];
    _counts integer[];
BEGIN
    WITH candidates AS (
        SELECT q.turn, q.queue, n.name, c.seq, c.rank, c.deaths
        FROM unnest(_queues) WITH ORDINALITY AS q(queue, turn)
        CROSS JOIN unnest(_names, _mosts) AS n(name, most)
        CROSS JOIN LATERAL (
            SELECT w.seq, w.rank, w.deaths FROM bide.work_items AS w
            WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name
                AND (w.expires_at IS NULL OR w.expires_at > _now)
            ORDER BY w.rank, w.seq LIMIT n.most) AS c
    )
    SELECT array_agg(seq ORDER BY turn, rank, seq) AS seqs, array_agg(deaths ORDER BY turn, rank, seq) AS deaths,
        array_agg(candidates.queue ORDER BY turn, rank, seq) AS queues,
        array_agg(candidates.name ORDER BY turn, rank, seq) AS names,
        array_agg(turn ORDER BY turn, rank, seq) AS turns
    INTO _found FROM candidates;
    IF _found.seqs IS NULL THEN
        RETURN;
    END IF;
    IF _found.deaths[1] >= 2 THEN
        RETURN QUERY SELECT _found.queues[1], _found.names[1], 1, _found.seqs[1];
        RETURN;
    END IF;
    IF cardinality(_queues) = 1 OR _limit <= min(most) FROM unnest(_mosts) AS given(most) THEN
        -- No limit can be reached across queues: the first of each queue, then the second of each, and so on.
        RETURN QUERY
        SELECT chosen.queue, chosen.name, count(*)::integer, NULL::bigint FROM (
            SELECT r.queue, r.name FROM (
                SELECT f.queue, f.name, f.turn, row_number() OVER (PARTITION BY f.turn ORDER BY f.place) AS round
                FROM unnest(_found.queues, _found.names, _found.turns, _found.deaths)
                    WITH ORDINALITY AS f(queue, name, turn, deaths, place)
                WHERE f.deaths < 2) AS r
            ORDER BY r.round, r.turn LIMIT _limit) AS chosen
        GROUP BY chosen.queue, chosen.name;
        RETURN;
    END IF;
    SELECT jsonb_object_agg(given.name, given.most) INTO _left FROM unnest(_names, _mosts) AS given(name, most);
    SELECT array_agg(coalesce(first, 1) ORDER BY turn), array_agg(coalesce(last, 0) ORDER BY turn)
    INTO _places, _ends
    FROM generate_series(1, cardinality(_queues)) AS turn LEFT JOIN (
        SELECT f.turn AS of_turn, min(f.place)::integer AS first, max(f.place)::integer AS last
        FROM unnest(_found.turns) WITH ORDINALITY AS f(turn, place) GROUP BY f.turn) AS spans ON of_turn = turn;
    _counts := array_fill(0, ARRAY[cardinality(_found.seqs)]);
    WHILE _progress AND _taken < _limit LOOP
        _progress := false;
        FOR _turn IN 1..cardinality(_queues) LOOP
            EXIT WHEN _taken = _limit;
            WHILE _places[_turn] <= _ends[_turn] LOOP
                _at := _places[_turn];
                _places[_turn] := _at + 1;
                CONTINUE WHEN _found.deaths[_at] >= 2 OR (_left ->> _found.names[_at])::integer <= 0;
                _left := jsonb_set(_left, ARRAY[_found.names[_at]],
                                   to_jsonb((_left ->> _found.names[_at])::integer - 1));
                _counts[_at] := 1;
                _taken := _taken + 1;
                _progress := true;
                EXIT;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN QUERY
    SELECT f.queue, f.name, count(*)::integer, NULL::bigint
    FROM unnest(_found.queues, _found.names, _counts) AS f(queue, name, taken) WHERE f.taken = 1
    GROUP BY f.queue, f.name;
END $$;

-- Lock what is eligible. Where nothing is: one row without a seq that says when something will be, and 0 where
-- others were faster.
CREATE FUNCTION bide.fetch(
    _queues text[], _names text[], _mosts integer[], _limit integer, _lock_ms bigint, _nonce text, _fetch_token text
) RETURNS TABLE (
    rank bigint, seq bigint, id text, queue text, name text, payload text, token text, attempts integer,
    deaths integer, enqueued_at bigint, expires_at bigint, max_attempts integer, next_in bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _queues_chosen text[];
    _names_chosen text[];
    _counts integer[];
    _alone bigint;
BEGIN
    PERFORM bide.free_expired_locks(_now);
    PERFORM bide.bury_past_life(_now, 1000);
    UPDATE bide.work_items AS w SET state = 'ready' FROM (
        SELECT over.seq FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
        CROSS JOIN LATERAL (
            (SELECT w.seq FROM bide.work_items AS w
             WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name AND w.visible_at <= _now
             LIMIT 1000 FOR UPDATE SKIP LOCKED)
        ) AS over) AS ripe
    WHERE w.seq = ripe.seq;
    UPDATE bide.work_items AS w SET state = 'ready' FROM (
        SELECT over.seq FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
        CROSS JOIN LATERAL (
            SELECT w.seq FROM bide.work_items AS w
            WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name
                AND w.visible_at - 2 * w.hold_ms > _now
            LIMIT 1000 FOR UPDATE SKIP LOCKED) AS over) AS set_back
    WHERE w.seq = set_back.seq;
    FOR _try IN 1..3 LOOP
        SELECT array_agg(c.queue), array_agg(c.name), array_agg(c.count), max(c.alone)
        INTO _queues_chosen, _names_chosen, _counts, _alone
        FROM bide.choose(_queues, _names, _mosts, _limit, _now) AS c;
        EXIT WHEN _counts IS NULL;
        RETURN QUERY
        WITH locked AS MATERIALIZED (
            SELECT l.seq FROM unnest(_queues_chosen, _names_chosen, _counts) AS p(queue, name, count)
            CROSS JOIN LATERAL (
                SELECT w.seq FROM bide.work_items AS w
                WHERE w.state = 'ready' AND w.queue = p.queue AND w.name = p.name
                    AND (w.expires_at IS NULL OR w.expires_at > _now)
                    AND CASE WHEN _alone IS NULL THEN w.deaths < 2 ELSE w.seq = _alone END
                ORDER BY w.rank, w.seq LIMIT p.count FOR UPDATE SKIP LOCKED) AS l
        )
        UPDATE bide.work_items AS w SET
            state = 'running', attempts = w.attempts + 1, token = w.seq || ':' || _nonce, fetch_token = _fetch_token,
            locked_until = _now + _lock_ms, lock_ms = _lock_ms
        FROM locked WHERE w.seq = locked.seq
        RETURNING w.rank, w.seq, w.id, w.queue, w.name, w.payload, w.token, w.attempts, w.deaths, w.enqueued_at,
            w.expires_at, w.max_attempts, NULL::bigint;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL, NULL::integer, NULL::integer,
        NULL::bigint, NULL::bigint, NULL::integer, bide.next_eligible_in(_queues, _names, _now);
END $$;

-- Settle by token, each token once; the tokens that lived, and whether work may have become eligible by it.
CREATE FUNCTION bide.settle(
    _seqs bigint[], _tokens text[], _kinds text[], _delays bigint[], _errors text[], _counted boolean[]
) RETURNS TABLE (token text, wakes boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _settled text[];
    _wakes boolean[];
    _queues text[];
    _keys text[];
BEGIN
    WITH given AS (
        SELECT * FROM unnest(_seqs, _tokens, _kinds, _delays, _errors, _counted)
            AS given(seq, token, kind, delay, error, counted)
    ), settled AS (
        UPDATE bide.work_items AS w SET
            state = CASE
                WHEN g.kind = 'ack' THEN 'done'
                WHEN g.kind = 'bury' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended THEN 'dead'
                WHEN g.delay > 0 THEN 'waiting' ELSE 'ready' END,
            ended_at = CASE
                WHEN g.kind <> 'abandon' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended THEN _now END,
            error = CASE
                WHEN g.kind <> 'abandon' THEN g.error
                WHEN g.counted AND w.attempts >= w.max_attempts THEN
                    bide.gave_up(w.attempts, coalesce(g.error, w.error))
                WHEN o.ended THEN bide.because('the subscription ended', o.reason)
                ELSE coalesce(g.error, w.error) END,
            attempts = CASE WHEN g.kind = 'abandon' AND NOT g.counted THEN w.attempts - 1 ELSE w.attempts END,
            visible_at = CASE
                WHEN g.kind <> 'abandon' OR (g.counted AND w.attempts >= w.max_attempts) OR o.ended
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
        RETURNING g.token, w.queue, w.order_key, w.state
    )
    SELECT array_agg(token), array_agg(order_key IS NOT NULL OR state IN ('ready', 'waiting')),
        array_agg(queue), array_agg(order_key)
    INTO _settled, _wakes, _queues, _keys FROM settled;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN QUERY SELECT * FROM unnest(_settled, _wakes);
END $$;

-- Prolong the locks of tokens that live; these tokens.
CREATE FUNCTION bide.renew(_seqs bigint[], _tokens text[], _lock_ms bigint) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
BEGIN
    RETURN QUERY
    UPDATE bide.work_items AS w SET locked_until = _now + _lock_ms, lock_ms = _lock_ms
    FROM unnest(_seqs, _tokens) AS given(seq, token)
    WHERE w.seq = given.seq AND w.token = given.token AND w.state = 'running' AND w.locked_until > _now
    RETURNING w.token;
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
