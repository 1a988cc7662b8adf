-- Queues of work items. Everything here is one call of one of these functions, and so one transaction.

-- An error text as it is kept: bounded.
CREATE FUNCTION bide.storable(_text text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN length(_text) > 2000 THEN left(_text, 1999) || '…' ELSE _text END $$;

CREATE FUNCTION bide.because(_reason text, _detail text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT bide.storable(_reason || coalesce(': ' || nullif(_detail, ''), '')) $$;

CREATE FUNCTION bide.gave_up(_attempts integer, _error text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT bide.because('gave up after ' || _attempts || CASE _attempts WHEN 1 THEN ' attempt' ELSE ' attempts' END,
                       _error) $$;

-- Of the items of an order key, one at most is not blocked: the front. It is the first that was enqueued, and when
-- it ends the next one takes its place. An advisory lock for each key lets one transaction at a time see to that.
CREATE FUNCTION bide.line_up(_queues text[], _keys text[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _line record;
    _next record;
    _front record;
BEGIN
    FOR _line IN
        SELECT DISTINCT hashtextextended(format('%L.%L', queue, key), 0) AS lock, queue, key
        FROM unnest(_queues, _keys) AS given(queue, key) WHERE key IS NOT NULL ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(_line.lock);
        LOOP
            SELECT seq, visible_at INTO _next FROM bide.work_items
            WHERE queue = _line.queue AND order_key = _line.key AND order_key IS NOT NULL AND state = 'blocked'
            ORDER BY seq LIMIT 1;
            EXIT WHEN NOT FOUND;
            SELECT seq, state INTO _front FROM bide.work_items
            WHERE queue = _line.queue AND order_key = _line.key AND order_key IS NOT NULL
                AND state IN ('ready', 'waiting', 'running')
            ORDER BY (state = 'running') DESC, seq LIMIT 1;
            IF FOUND THEN
                EXIT WHEN _front.state = 'running' OR _front.seq < _next.seq;
                UPDATE bide.work_items SET state = 'blocked'
                WHERE seq = _front.seq AND state IN ('ready', 'waiting');
                CONTINUE WHEN NOT FOUND;  -- somebody took it meanwhile
            END IF;
            UPDATE bide.work_items
            SET state = CASE WHEN visible_at > _now THEN 'waiting' ELSE 'ready' END
            WHERE seq = _next.seq AND state = 'blocked';
            EXIT WHEN FOUND;
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION bide.enqueue(
    _ids text[], _queues text[], _names text[], _payloads text[], _priorities bigint[], _delays bigint[],
    _max_attempts integer[], _withins bigint[], _within_texts text[], _keys text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
BEGIN
    INSERT INTO bide.work_items (id, queue, name, state, payload, priority, rank, visible_at, hold_ms, max_attempts,
                                 within_ms, within_text, expires_at, order_key, enqueued_at)
    SELECT id, queue, name,
        CASE WHEN key IS NOT NULL THEN 'blocked' WHEN delay > 0 THEN 'waiting' ELSE 'ready' END,
        payload, priority, _now + delay - priority * 60000, _now + delay, delay, most, within_ms, within_text,
        _now + within_ms, key, _now
    FROM unnest(_ids, _queues, _names, _payloads, _priorities, _delays, _max_attempts, _withins, _within_texts,
                _keys) WITH ORDINALITY AS
        given(id, queue, name, payload, priority, delay, most, within_ms, within_text, key, place)
    ORDER BY place
    ON CONFLICT (id) DO NOTHING;
    PERFORM bide.line_up(_queues, _keys, _now) WHERE array_remove(_keys, NULL) <> '{}';
END $$;

-- Give back what its worker lost, counting the death; bury what is out of lives or attempts. Where the clock was
-- set back a lock would last for ever: it gets one more length, in which to be renewed.
CREATE FUNCTION bide.free_expired_locks(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _queues text[];
    _keys text[];
BEGIN
    UPDATE bide.work_items SET locked_until = _now + lock_ms
    WHERE state = 'running' AND locked_until - 2 * lock_ms > _now;
    WITH lost AS MATERIALIZED (
        SELECT seq FROM bide.work_items WHERE state = 'running' AND locked_until <= _now
        ORDER BY locked_until LIMIT 1000 FOR UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE bide.work_items AS w SET
            deaths = deaths + 1,
            state = CASE WHEN deaths + 1 >= 3 OR attempts >= max_attempts THEN 'dead' ELSE 'ready' END,
            ended_at = CASE WHEN deaths + 1 >= 3 OR attempts >= max_attempts THEN _now END,
            error = CASE
                WHEN deaths + 1 >= 3 THEN 'the worker died ' || deaths + 1 || ' times while handling it'
                WHEN attempts >= max_attempts THEN
                    bide.gave_up(attempts, 'its lock expired: the worker died or stalled while handling it')
                ELSE 'its lock expired: the worker died or stalled while handling it' END,
            token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
        FROM lost WHERE w.seq = lost.seq
        RETURNING w.queue, w.order_key
    )
    SELECT array_agg(queue), array_agg(order_key) INTO _queues, _keys FROM freed WHERE order_key IS NOT NULL;
    IF _keys IS NOT NULL THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
END $$;

-- Bury items whose whole life is over before anybody had them; how many.
CREATE FUNCTION bide.bury_past_life(_now bigint, _limit integer) RETURNS integer LANGUAGE plpgsql AS $$
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
            error = bide.because('not delivered within ' || within_text, error)
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

-- Milliseconds until an item of these queues and names will be eligible as things stand; 0: one is.
CREATE FUNCTION bide.next_eligible_in(_queues text[], _names text[], _now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _instant bigint;
BEGIN
    PERFORM 1 FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
    CROSS JOIN LATERAL (SELECT 1 FROM bide.work_items AS w  -- not EXISTS, which would be joined to the whole table
                        WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name LIMIT 1) AS found
    LIMIT 1;
    IF FOUND THEN
        RETURN 0;
    END IF;
    SELECT least(
        (SELECT min(first.visible_at)
         FROM unnest(_queues) AS q(queue) CROSS JOIN unnest(_names) AS n(name)
         CROSS JOIN LATERAL (SELECT w.visible_at FROM bide.work_items AS w
                             WHERE w.state = 'waiting' AND w.queue = q.queue AND w.name = n.name
                             ORDER BY w.visible_at LIMIT 1) AS first),
        (SELECT w.locked_until FROM bide.work_items AS w
         WHERE w.state = 'running' AND w.queue = ANY (_queues) AND w.name = ANY (_names)
         ORDER BY w.locked_until LIMIT 1)) INTO _instant;
    RETURN CASE WHEN _instant IS NOT NULL THEN greatest(_instant - _now, 0) END;
END $$;
