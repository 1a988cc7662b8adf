-- Enqueueing: from arrays, and from JSON for callers of any language.

-- Texts that came as one, between each two of them U+FDD0 and a comma.
CREATE FUNCTION bide.unpacked(_packed text) RETURNS text[] LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE _packed WHEN '' THEN ARRAY[''] ELSE string_to_array(_packed, U&'\FDD0,') END $$;

-- A column of so many values; one of a single value has that for all.
CREATE FUNCTION bide.spread(_values anyarray, _count integer) RETURNS anyarray LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE cardinality(_values) WHEN _count THEN _values ELSE array_fill(_values[1], ARRAY[_count]) END $$;

-- New items, each an element of these arrays, as rows.
CREATE FUNCTION bide.new_rows(
    _seqs bigint[], _ids text[], _queues text[], _names text[], _payloads text[], _priorities bigint[], _delays bigint[],
    _ats bigint[], _max_attempts integer[], _withins bigint[], _order_keys text[], _keys text[], _limit_keys text[],
    _keeps bigint[], _now bigint
) RETURNS TABLE (
    seq bigint, id text, queue text, name text, state text, payload text, priority bigint, rank bigint, visible_at bigint,
    hold_ms bigint, max_attempts integer, within_ms bigint, expires_at bigint, order_key text, key text, limit_key text,
    keep_ms bigint, enqueued_at bigint
) LANGUAGE sql STABLE AS $$
SELECT g.seq, g.id, g.queue, g.name,
    CASE WHEN g.order_key IS NOT NULL THEN 'blocked' WHEN v.visible_at > _now THEN 'waiting' ELSE 'ready' END,
    g.payload, g.priority, v.visible_at - g.priority * 60000, v.visible_at,
    CASE WHEN g.at > _now + g.delay THEN g.at ELSE g.delay END,
    g.max_attempts, g.within_ms, _now + g.within_ms, g.order_key, g.key, g.limit_key, g.keep_ms, _now
FROM unnest(_seqs, _ids, _queues, _names, _payloads, _priorities, _delays, _ats, _max_attempts, _withins,
            _order_keys, _keys, _limit_keys, _keeps)
    AS g(seq, id, queue, name, payload, priority, delay, at, max_attempts, within_ms, order_key, key, limit_key, keep_ms)
CROSS JOIN LATERAL (SELECT greatest(_now + g.delay, g.at) AS visible_at) AS v
$$;

-- Store new items each of which may be there already, by its id or its key; places, ids and conflicts of those that were.
-- Where there is a conflict nothing is done. Rows are inserted in the order of their keys, so that two callers with the
-- same keys wait in line and not crosswise; of an id or a key that is given twice, the first counts.
CREATE FUNCTION bide.enqueue_one_by_one(
    _seqs bigint[], _ids text[], _queues text[], _names text[], _payloads text[], _priorities bigint[], _delays bigint[],
    _ats bigint[], _max_attempts integer[], _withins bigint[], _order_keys text[], _keys text[], _limit_keys text[],
    _keeps bigint[], _now bigint, OUT places integer[], OUT ids text[], OUT conflicts boolean[]
) LANGUAGE plpgsql AS $$
DECLARE
    _left bigint[] := _seqs;
BEGIN
    WHILE _left IS NOT NULL LOOP  -- what was in the way may have gone meanwhile, or was not new itself
        WITH firsts AS (
            SELECT DISTINCT ON (id) * FROM bide.new_rows(
                _seqs, _ids, _queues, _names, _payloads, _priorities, _delays, _ats, _max_attempts, _withins, _order_keys,
                _keys, _limit_keys, _keeps, _now) AS given
            WHERE given.seq = ANY (_left) ORDER BY given.id, given.seq
        )
        UPDATE bide.work_items AS w SET key = NULL FROM firsts AS f  -- a key whose day is over is free
        WHERE w.queue = f.queue AND w.name = f.name AND w.key = f.key AND w.key IS NOT NULL
            AND w.ended_at <= _now - 86400000
            AND NOT EXISTS (SELECT 1 FROM bide.work_items AS own WHERE own.id = f.id);
        WITH firsts AS (
            SELECT DISTINCT ON (id) * FROM bide.new_rows(
                _seqs, _ids, _queues, _names, _payloads, _priorities, _delays, _ats, _max_attempts, _withins, _order_keys,
                _keys, _limit_keys, _keeps, _now) AS given
            WHERE given.seq = ANY (_left) ORDER BY given.id, given.seq
        )
        INSERT INTO bide.work_items (seq, id, queue, name, state, payload, priority, rank, visible_at, hold_ms,
            max_attempts, within_ms, expires_at, order_key, key, limit_key, keep_ms, enqueued_at)
        SELECT * FROM firsts ORDER BY queue, name, key, seq
        ON CONFLICT DO NOTHING;
        SELECT array_agg(g.place), array_agg(coalesce(own.id, other.id)),
            array_agg(own.id IS NULL AND other.payload <> g.payload),
            array_agg(g.seq) FILTER (WHERE own.id IS NULL AND other.id IS NULL)
        INTO places, ids, conflicts, _left
        FROM unnest(_seqs, _ids, _queues, _names, _payloads, _keys) WITH ORDINALITY
            AS g(seq, id, queue, name, payload, key, place)
        LEFT JOIN bide.work_items AS own ON own.id = g.id AND NOT (own.seq > g.seq AND own.seq = ANY (_seqs))
        LEFT JOIN bide.work_items AS other ON own.id IS NULL AND other.queue = g.queue
            AND other.name = g.name AND other.key = g.key AND other.key IS NOT NULL
        WHERE own.seq IS DISTINCT FROM g.seq;
        IF true = ANY (conflicts) THEN
            RAISE EXCEPTION USING ERRCODE = 'BIDE1';  -- takes back what was done here
        END IF;
    END LOOP;
EXCEPTION WHEN SQLSTATE 'BIDE1' THEN
    RETURN;
END $$;

-- Store items that differ in id and payload alone; whether they were all new. If not, nothing was done.
CREATE FUNCTION bide.enqueue_alike(
    _ids text[], _queue text, _name text, _payloads text[], _priority bigint, _delay bigint, _at bigint,
    _max_attempts integer, _within_ms bigint, _limit_key text, _keep_ms bigint, _now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _visible_at bigint := greatest(_now + _delay, _at);
    _hold_ms bigint := CASE WHEN _at > _now + _delay THEN _at ELSE _delay END;
    _rank bigint := _visible_at - _priority * 60000;
    _state text := CASE WHEN _visible_at > _now THEN 'waiting' ELSE 'ready' END;
    _expires_at bigint := _now + _within_ms;
BEGIN
    INSERT INTO bide.work_items (id, queue, name, state, payload, priority, rank, visible_at, hold_ms, max_attempts,
                                 within_ms, expires_at, limit_key, keep_ms, enqueued_at)
    SELECT given.id, _queue, _name, _state, given.payload, _priority, _rank, _visible_at, _hold_ms, _max_attempts,
        _within_ms, _expires_at, _limit_key, _keep_ms, _now
    FROM unnest(_ids, _payloads) AS given(id, payload);
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RETURN false;
END $$;

-- Store items of any kind; what comes back is as of bide.enqueue.
CREATE FUNCTION bide.enqueue_mixed(
    _ids text[], _queues text[], _names text[], _payloads text[], _priorities bigint[], _delays bigint[], _ats bigint[],
    _max_attempts integer[], _withins bigint[], _order_keys text[], _keys text[], _limit_keys text[], _keeps bigint[],
    _now bigint
) RETURNS TABLE (place integer, id text, conflict boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _wanted integer := cardinality(_ids);
    _seqs bigint[] := ARRAY(SELECT nextval('bide.work_items_seq_seq') FROM generate_series(1, _wanted));
    _stored integer := 0;
    _known record;
BEGIN
    IF array_remove(_keys, NULL) = '{}' THEN
        BEGIN
            INSERT INTO bide.work_items (seq, id, queue, name, state, payload, priority, rank, visible_at, hold_ms,
                max_attempts, within_ms, expires_at, order_key, key, limit_key, keep_ms, enqueued_at)
            SELECT * FROM bide.new_rows(_seqs, _ids, _queues, _names, _payloads, _priorities, _delays, _ats, _max_attempts,
                                        _withins, _order_keys, _keys, _limit_keys, _keeps, _now);
            _stored := _wanted;
        EXCEPTION WHEN unique_violation THEN
            _stored := 0;
        END;
    END IF;
    IF _stored < _wanted THEN
        SELECT * INTO _known FROM bide.enqueue_one_by_one(
            _seqs, _ids, _queues, _names, _payloads, _priorities, _delays, _ats, _max_attempts, _withins, _order_keys,
            _keys, _limit_keys, _keeps, _now);
        IF true = ANY (_known.conflicts) THEN
            RETURN QUERY SELECT u.* FROM unnest(_known.places, _known.ids, _known.conflicts) AS u(place, id, conflict)
                         WHERE u.conflict ORDER BY u.place;
            RETURN;
        END IF;
    END IF;
    IF array_remove(_order_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _order_keys, _now);
    END IF;
    IF _stored < _wanted THEN
        RETURN QUERY SELECT u.* FROM unnest(_known.places, _known.ids, _known.conflicts) AS u(place, id, conflict);
    END IF;
END $$;

-- Store items; all or, where a key is another payload's, none. Each is an element of these arrays, of which all but ids
-- and payloads may have one element for all. What comes back are those that were not new: their places and the items
-- that were there, or the conflicts alone. Nearly always items differ in id and payload alone and are all new.
CREATE FUNCTION bide.enqueue(
    _ids text[], _queues text[], _names text[], _payloads text[], _priorities bigint[], _delays bigint[], _ats bigint[],
    _max_attempts integer[], _withins bigint[], _order_keys text[], _keys text[], _limit_keys text[], _keeps bigint[],
    _notify text[]
) RETURNS TABLE (place integer, id text, conflict boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _wanted integer := cardinality(_ids);
    _alike boolean := 1 = ALL (ARRAY[
        cardinality(_queues), cardinality(_names), cardinality(_priorities), cardinality(_delays), cardinality(_ats),
        cardinality(_max_attempts), cardinality(_withins), cardinality(_order_keys), cardinality(_keys),
        cardinality(_limit_keys), cardinality(_keeps)]) AND _order_keys[1] IS NULL AND _keys[1] IS NULL;
BEGIN
    IF _notify <> '{}' THEN
        PERFORM pg_notify(_notify[1], _notify[2]);
    END IF;
    IF _alike AND bide.enqueue_alike(_ids, _queues[1], _names[1], _payloads, _priorities[1], _delays[1], _ats[1],
                                     _max_attempts[1], _withins[1], _limit_keys[1], _keeps[1], _now) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM bide.enqueue_mixed(
        _ids, bide.spread(_queues, _wanted), bide.spread(_names, _wanted), _payloads, bide.spread(_priorities, _wanted),
        bide.spread(_delays, _wanted), bide.spread(_ats, _wanted), bide.spread(_max_attempts, _wanted),
        bide.spread(_withins, _wanted), bide.spread(_order_keys, _wanted), bide.spread(_keys, _wanted),
        bide.spread(_limit_keys, _wanted), bide.spread(_keeps, _wanted), _now);
END $$;

-- For callers of any language, within whatever transaction they are in. Items are a JSON array of objects:
--   queue, name, payload (a text; any other JSON is stored as its text), and if wanted id, priority, delay_ms,
--   at_ms (since the Unix epoch), max_attempts, within_ms, order_key, key, limit_key, keep_result_ms.
-- One row comes back for each, in order. A key of another payload is an error (23505); with refuse => false it is a
-- row whose conflict is true and whose id is that other item's, and then nothing was stored.
-- Workers are told when the transaction commits.
CREATE FUNCTION bide.bide_enqueue(items jsonb, refuse boolean DEFAULT true)
RETURNS TABLE (id text, new boolean, conflict boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _given record;
    _known record;
    _ids text[];
    _new boolean[];
    _conflicts boolean[];
    _unknown text;
BEGIN
    SELECT field INTO _unknown FROM jsonb_array_elements(items) AS item, jsonb_object_keys(item) AS field
    WHERE field NOT IN ('id', 'queue', 'name', 'payload', 'priority', 'delay_ms', 'at_ms', 'max_attempts', 'within_ms',
                        'order_key', 'key', 'limit_key', 'keep_result_ms')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'bide_enqueue: an item has no field %', quote_literal(_unknown)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT array_agg(coalesce(item ->> 'id', replace(gen_random_uuid()::text, '-', ''))) AS ids,
        array_agg(item ->> 'queue') AS queues, array_agg(item ->> 'name') AS names,
        array_agg(item ->> 'payload') AS payloads, array_agg(coalesce((item ->> 'priority')::bigint, 0)) AS priorities,
        array_agg(coalesce((item ->> 'delay_ms')::bigint, 0)) AS delays, array_agg((item ->> 'at_ms')::bigint) AS ats,
        array_agg((item ->> 'max_attempts')::integer) AS max_attempts,
        array_agg((item ->> 'within_ms')::bigint) AS withins, array_agg(item ->> 'order_key') AS order_keys,
        array_agg(item ->> 'key') AS keys, array_agg(item ->> 'limit_key') AS limit_keys,
        array_agg((item ->> 'keep_result_ms')::bigint) AS keeps
    INTO _given
    FROM (SELECT item FROM jsonb_array_elements(items) WITH ORDINALITY AS all_of(item, place) ORDER BY place) AS given;
    IF _given.ids IS NULL THEN
        RETURN;
    END IF;
    IF array_position(_given.queues, NULL) IS NOT NULL OR array_position(_given.names, NULL) IS NOT NULL
        OR array_position(_given.payloads, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'bide_enqueue: an item needs queue, name and payload'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    _ids := _given.ids;
    _new := array_fill(true, ARRAY[cardinality(_ids)]);
    _conflicts := array_fill(false, ARRAY[cardinality(_ids)]);
    FOR _known IN
        SELECT e.place, e.id, e.conflict FROM bide.enqueue(
            _given.ids, _given.queues, _given.names, _given.payloads, _given.priorities, _given.delays, _given.ats,
            _given.max_attempts, _given.withins, _given.order_keys, _given.keys, _given.limit_keys, _given.keeps,
            ARRAY[bide.channel(), '']) AS e
    LOOP
        IF _known.conflict AND refuse THEN
            RAISE EXCEPTION 'key % of % in queue % belongs to item %, whose payload is another one',
                quote_literal(_given.keys[_known.place]), _given.names[_known.place],
                quote_literal(_given.queues[_known.place]), _known.id
                USING ERRCODE = 'unique_violation', HINT = 'Give this work a key of its own, or none.';
        END IF;
        _ids[_known.place] := _known.id;
        _new[_known.place] := false;
        _conflicts[_known.place] := _known.conflict;
        IF _known.conflict THEN
            _new := array_fill(false, ARRAY[cardinality(_ids)]);
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(_ids, _new, _conflicts);
END $$;
