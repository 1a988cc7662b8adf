-- Taking work.

-- Make ready what has waited long enough; a wait that ends twice its own length away is of a clock set back since.
CREATE FUNCTION bide.ripen(_queues text[], _names text[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
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
END $$;

-- What time brought about, before items are taken: locks that expired, lives that are over, waits that are. One statement
-- says whether there is anything of it, and nearly always there is nothing. That the clock was set back shows by the
-- lock that lasts longest.
CREATE FUNCTION bide.tidy(_queues text[], _names text[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _seen record;
BEGIN
    SELECT (SELECT locked_until - lock_ms > _now FROM bide.work_items WHERE state = 'running'
            ORDER BY locked_until DESC LIMIT 1) AS set_back,
        (SELECT locked_until <= _now FROM bide.work_items WHERE state = 'running' ORDER BY locked_until LIMIT 1) AS expired,
        (SELECT expires_at <= _now FROM bide.work_items
         WHERE expires_at IS NOT NULL AND state IN ('ready', 'waiting', 'blocked') ORDER BY expires_at LIMIT 1) AS past,
        (SELECT true FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
         CROSS JOIN LATERAL (
            (SELECT 1 FROM bide.work_items AS w
             WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name AND w.visible_at <= _now LIMIT 1)
            UNION ALL
            (SELECT 1 FROM bide.work_items AS w
             WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name
                AND w.visible_at - 2 * w.hold_ms > _now LIMIT 1)) AS over
         LIMIT 1) AS ripe
    INTO _seen;
    IF _seen.set_back THEN
        PERFORM bide.mend_locks(_now);
    END IF;
    IF _seen.expired THEN
        PERFORM bide.free_expired_locks(_now);
    END IF;
    IF _seen.past OR _seen.expired THEN  -- what was freed may be past its life too
        PERFORM bide.bury_past_life(_now, 1000);
    END IF;
    IF _seen.ripe THEN
        PERFORM bide.ripen(_queues, _names, _now);
    END IF;
END $$;

-- Milliseconds until an item of these queues and names will be eligible as things stand; 0: one is. Of a queue with a
-- limit every lock counts, whatever the item's name: the place that it frees is wanted.
CREATE FUNCTION bide.next_eligible_in(
    _queues text[], _names text[], _queue_limits integer[], _key_limits integer[]
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    _now bigint := bide.now_ms();
    _limited text[];
    _instant bigint;
BEGIN
    IF _queue_limits IS NULL THEN
        PERFORM 1 FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
        CROSS JOIN LATERAL (
            (SELECT 1 FROM bide.work_items AS w  -- not EXISTS, which would be joined to the whole table
             WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NULL LIMIT 1)
            UNION ALL
            (SELECT 1 FROM bide.work_items AS w
             WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NOT NULL LIMIT 1)
        ) AS found
        LIMIT 1;
    ELSE
        PERFORM 1 FROM bide.choose_in_groups(_queues, _names, array_fill(1, ARRAY[cardinality(_names)]), 1, _now,
                                             _queue_limits, _key_limits, array_fill(NULL::text, ARRAY[cardinality(_queues)]))
        WHERE chosen <> '{}';
    END IF;
    IF FOUND THEN
        RETURN 0;
    END IF;
    SELECT array_agg(queue) INTO _limited FROM unnest(_queues, _queue_limits, _key_limits) AS q(queue, most, each)
    WHERE most IS NOT NULL OR each IS NOT NULL;
    SELECT least(
        (SELECT min(first.visible_at)
         FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
         CROSS JOIN LATERAL (SELECT w.visible_at FROM bide.work_items AS w
                             WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name
                             ORDER BY w.visible_at LIMIT 1) AS first),
        (SELECT w.locked_until FROM bide.work_items AS w
         WHERE w.state = 'running' AND w.queue = ANY (_queues) AND (w.name = ANY (_names) OR w.queue = ANY (_limited))
         ORDER BY w.locked_until LIMIT 1)) INTO _instant;
    RETURN CASE WHEN _instant IS NOT NULL THEN greatest(_instant - _now, 0) END;
END $$;

-- Lock what is eligible. Where nothing is: one row without a seq that says when something will be, and 0 where others
-- had what there is.
-- It looks first and locks after it, so that nobody locks rows that it does not take; where others were faster every
-- time, it locks all that it might take and chooses among those.
CREATE FUNCTION bide.fetch(
    _queues text[], _names text[], _mosts integer[], _limit integer, _lock_ms bigint, _nonce text, _fetch_token text,
    _queue_limits integer[], _key_limits integer[], _afters text[]
) RETURNS TABLE (
    rank bigint, seq bigint, id text, queue text, name text, payload text, attempts integer, deaths integer,
    enqueued_at bigint, expires_at bigint, max_attempts integer, given_back integer, keeps_result boolean,
    next_in bigint, afters text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint;
    _grouped boolean := _queue_limits IS NOT NULL
        OR cardinality(_queues) > 1 AND _limit > (SELECT min(most) FROM unnest(_mosts) AS given(most));
    _ready record;
    _kinds record;
    _chosen bigint[];
BEGIN
    IF _queue_limits IS NOT NULL THEN
        PERFORM bide.lock_limits(_queues, _queue_limits, _key_limits);
    END IF;
    _now := bide.now_ms();
    PERFORM bide.tidy(_queues, _names, _now);
    FOR _try IN 1..3 LOOP
        SELECT array_agg(k.turn) AS turns, array_agg(k.queue) AS queues, array_agg(k.name) AS names,
            array_agg(k.most) AS mosts, array_agg(k.keyed) AS keyed, count(*) AS count, max(k.deaths) AS deaths
        INTO _ready FROM bide.ready_kinds(_queues, _names, _mosts) AS k;
        EXIT WHEN _ready.count = 0;
        IF _grouped THEN
            SELECT c.chosen, c.afters INTO _chosen, _afters
            FROM bide.choose_in_groups(_queues, _names, _mosts, _limit, _now, _queue_limits, _key_limits, _afters) AS c;
            EXIT WHEN _chosen IS NULL;
            _chosen := ARRAY(SELECT w.seq FROM bide.work_items AS w WHERE w.seq = ANY (_chosen) AND w.state = 'ready'
                             FOR UPDATE SKIP LOCKED);
        ELSIF _ready.count = 1 AND _ready.deaths < 2 AND NOT _ready.keyed[1] THEN  -- nothing to choose between
            RETURN QUERY
            UPDATE bide.work_items AS w SET
                state = 'running', attempts = w.attempts + 1, token = _nonce,
                fetch_token = _fetch_token, locked_until = _now + _lock_ms, lock_ms = _lock_ms, limited = false
            FROM (
                SELECT l.seq FROM bide.work_items AS l
                WHERE l.state = 'ready' AND l.queue = _ready.queues[1] AND l.name = _ready.names[1]
                    AND l.limit_key IS NULL AND (l.expires_at IS NULL OR l.expires_at > _now) AND l.deaths < 2
                ORDER BY l.rank, l.seq LIMIT _ready.mosts[1] FOR UPDATE SKIP LOCKED) AS locked
            WHERE w.seq = locked.seq
            RETURNING w.rank, w.seq, w.id, w.queue, w.name, w.payload, w.attempts, w.deaths, w.enqueued_at,
                w.expires_at, w.max_attempts, w.given_back, w.keep_ms IS NOT NULL, NULL::bigint, NULL::text[];
            IF FOUND THEN
                RETURN;
            END IF;
            CONTINUE;
        ELSIF _try < 3 THEN
            SELECT array_agg(c.queue) AS queues, array_agg(c.name) AS names, array_agg(c.keyed) AS keyed,
                array_agg(c.count) AS counts, max(c.alone) AS alone
            INTO _kinds FROM bide.choose_kinds(_ready.turns, _ready.queues, _ready.names, _ready.mosts, _ready.keyed,
                                               _limit, _now) AS c;
            EXIT WHEN _kinds.counts IS NULL;
            _chosen := ARRAY(SELECT l.seq FROM bide.lock_kinds(_kinds.queues, _kinds.names, _kinds.keyed, _kinds.counts,
                                                               _kinds.alone, _now) AS l);
        ELSE
            _chosen := ARRAY(
                SELECT l.seq FROM unnest(_ready.turns, _ready.queues, _ready.names, _ready.mosts, _ready.keyed)
                    AS k(turn, queue, name, most, keyed)
                CROSS JOIN LATERAL bide.lock_kinds(ARRAY[k.queue], ARRAY[k.name], ARRAY[k.keyed], ARRAY[k.most], NULL,
                                                   _now) AS l
                ORDER BY row_number() OVER (PARTITION BY k.turn ORDER BY l.rank, l.seq), k.turn LIMIT _limit);
        END IF;
        CONTINUE WHEN _chosen = '{}';
        RETURN QUERY
        UPDATE bide.work_items AS w SET
            state = 'running', attempts = w.attempts + 1, token = _nonce, fetch_token = _fetch_token,
            locked_until = _now + _lock_ms, lock_ms = _lock_ms, limited = _queue_limits IS NOT NULL
        WHERE w.seq = ANY (_chosen)
        RETURNING w.rank, w.seq, w.id, w.queue, w.name, w.payload, w.attempts, w.deaths, w.enqueued_at, w.expires_at,
            w.max_attempts, w.given_back, w.keep_ms IS NOT NULL, NULL::bigint,
            CASE WHEN _queue_limits IS NOT NULL THEN _afters END;
        RETURN;
    END LOOP;
    seq := NULL;
    next_in := bide.next_eligible_in(_queues, _names, _queue_limits, _key_limits);
    RETURN NEXT;
END $$;
