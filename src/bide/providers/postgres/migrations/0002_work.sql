-- What every way of changing work items needs. Everything here is one call of one of these functions, and so one
-- transaction.

-- An error text as it is kept: bounded.
CREATE FUNCTION bide.storable(_text text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN length(_text) > 2000 THEN left(_text, 1999) || '…' ELSE _text END $$;

CREATE FUNCTION bide.because(_reason text, _detail text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT bide.storable(_reason || coalesce(': ' || nullif(_detail, ''), '')) $$;

CREATE FUNCTION bide.gave_up(_attempts integer, _error text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT bide.because('gave up after ' || _attempts || CASE _attempts WHEN 1 THEN ' attempt' ELSE ' attempts' END,
                       _error) $$;

-- A duration as people read it: 1h30m, 1.5ms, 0s.
CREATE FUNCTION bide.duration_text(_ms bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(nullif(string_agg(count || unit, '' ORDER BY place), ''), '0s') FROM (VALUES
    (1, 'd', _ms / 86400000), (2, 'h', _ms / 3600000 % 24), (3, 'm', _ms / 60000 % 60), (4, 's', _ms / 1000 % 60),
    (5, 'ms', _ms % 1000)) AS part(place, unit, count)
WHERE count > 0
$$;

-- Where processes of this store listen.
CREATE FUNCTION bide.channel() RETURNS text LANGUAGE sql STABLE AS $$
SELECT 'bide:' || n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = 'bide.meta'::regclass
$$;

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

-- Locks that would last for ever, since the clock was set back after they were taken, get one more length, in which to
-- be renewed. To find them takes a look at everything that is running.
CREATE FUNCTION bide.mend_locks(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bide.work_items SET locked_until = _now + lock_ms
    WHERE state = 'running' AND locked_until - 2 * lock_ms > _now;
END $$;

-- Give back what its worker lost, counting the death; bury what is out of lives or attempts.
CREATE FUNCTION bide.free_expired_locks(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _queues text[];
    _keys text[];
BEGIN
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
