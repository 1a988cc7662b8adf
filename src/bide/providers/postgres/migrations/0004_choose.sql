-- Which of the eligible items a fetch takes, also where a limit bounds how much of a queue may be running at a time.

-- One fetch at a time that has a limit on one of these queues counts and takes.
CREATE FUNCTION bide.lock_limits(_queues text[], _queue_limits integer[], _key_limits integer[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _lock bigint;
BEGIN
    FOR _lock IN
        SELECT hashtextextended('limit of ' || queue, 'bide.work_items'::regclass::oid::bigint)
        FROM unnest(_queues, _queue_limits, _key_limits) AS given(queue, queue_limit, key_limit)
        WHERE queue_limit IS NOT NULL OR key_limit IS NOT NULL ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(_lock);
    END LOOP;
END $$;

-- Limit keys of a queue and name with an item that is ready: each is found by one look into an index, so that it
-- does not matter how many items a key has.
CREATE FUNCTION bide.ready_limit_keys(_queue text, _name text) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    _key text;
BEGIN
    SELECT limit_key INTO _key FROM bide.work_items
    WHERE state = 'ready' AND queue = _queue AND name = _name AND limit_key IS NOT NULL
    ORDER BY limit_key LIMIT 1;
    WHILE FOUND LOOP
        RETURN NEXT _key;
        SELECT limit_key INTO _key FROM bide.work_items
        WHERE state = 'ready' AND queue = _queue AND name = _name AND limit_key IS NOT NULL AND limit_key > _key
        ORDER BY limit_key LIMIT 1;
    END LOOP;
END $$;

-- How many items of a queue are running, by limit key; NULL: those without one.
CREATE FUNCTION bide.running_by_limit_key(_queue text, _now bigint) RETURNS TABLE (key text, count integer)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT w.limit_key, count(*)::integer FROM bide.work_items AS w
    WHERE w.state = 'running' AND w.queue = _queue AND w.locked_until > _now GROUP BY w.limit_key;
END $$;

-- The first items of each queue, name and, in a queue with a limit, limit key: groups, each in order of rank.
CREATE FUNCTION bide.groups_within_limits(
    _queues text[], _names text[], _mosts integer[], _limit integer, _now bigint, _queue_limits integer[],
    _key_limits integer[]
) RETURNS TABLE (turn integer, key text, running integer, seqs bigint[], name_places integer[], deaths integer[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH q AS MATERIALIZED (
        SELECT given.turn::integer, given.queue, given.key_limit,
            given.queue_limit IS NOT NULL OR given.key_limit IS NOT NULL AS limited,
            least(given.queue_limit - (SELECT coalesce(sum(r.count), 0) FROM bide.running_by_limit_key(given.queue, _now) AS r
                                       WHERE given.queue_limit IS NOT NULL), _limit)::integer AS room
        FROM unnest(_queues, _queue_limits, _key_limits) WITH ORDINALITY AS given(queue, queue_limit, key_limit, turn)
    ), running AS MATERIALIZED (
        SELECT q.turn, r.key, r.count FROM q CROSS JOIN LATERAL bide.running_by_limit_key(q.queue, _now) AS r
        WHERE q.limited
    ), n AS MATERIALIZED (
        SELECT given.name, given.most, given.place::integer
        FROM unnest(_names, _mosts) WITH ORDINALITY AS given(name, most, place)
    ), keyed AS (
        SELECT q.turn, q.queue, n.name, n.place, k.key, coalesce(r.count, 0) AS running,
            least(n.most, q.room + 3, q.key_limit - coalesce(r.count, 0) + 3) AS wanted
        FROM q CROSS JOIN n CROSS JOIN LATERAL bide.ready_limit_keys(q.queue, n.name) AS k(key)
        LEFT JOIN running AS r ON r.turn = q.turn AND r.key = k.key
        WHERE q.limited AND q.room > 0 AND coalesce(q.key_limit > coalesce(r.count, 0), true)
    ), candidates AS (
        SELECT keyed.turn, keyed.key, keyed.running, keyed.place, c.*
        FROM keyed CROSS JOIN LATERAL (
            SELECT w.rank, w.seq, w.deaths FROM bide.work_items AS w
            WHERE w.state = 'ready' AND w.queue = keyed.queue AND w.name = keyed.name AND w.limit_key = keyed.key
                AND w.limit_key IS NOT NULL AND (w.expires_at IS NULL OR w.expires_at > _now)
            ORDER BY w.rank, w.seq LIMIT keyed.wanted) AS c
        UNION ALL
        SELECT q.turn, NULL, coalesce((SELECT r.count FROM running AS r WHERE r.turn = q.turn AND r.key IS NULL), 0),
            n.place, c.*
        FROM q CROSS JOIN n CROSS JOIN LATERAL (
            SELECT w.rank, w.seq, w.deaths FROM bide.work_items AS w
            WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NULL
                AND (w.expires_at IS NULL OR w.expires_at > _now)
            ORDER BY w.rank, w.seq LIMIT n.most) AS c
        WHERE q.room > 0
        UNION ALL
        SELECT q.turn, NULL, 0, n.place, c.*
        FROM q CROSS JOIN n CROSS JOIN LATERAL (
            SELECT w.rank, w.seq, w.deaths FROM bide.work_items AS w
            WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NOT NULL
                AND (w.expires_at IS NULL OR w.expires_at > _now)
            ORDER BY w.rank, w.seq LIMIT n.most) AS c
        WHERE NOT q.limited
    )
    SELECT c.turn, c.key, c.running, array_agg(c.seq ORDER BY c.rank, c.seq),
        array_agg(c.place ORDER BY c.rank, c.seq), array_agg(c.deaths ORDER BY c.rank, c.seq)
    FROM candidates AS c GROUP BY c.turn, c.key, c.running;
END $$;

-- Which items a fetch takes that has a limit, or whose names are bounded over several queues: the rule of
-- bide.providers.choosing. _afters are the limit keys of each queue that were served last; afters those from now on.
CREATE FUNCTION bide.choose_in_groups(
    _queues text[], _names text[], _mosts integer[], _limit integer, _now bigint, _queue_limits integer[],
    _key_limits integer[], _afters text[], OUT chosen bigint[], OUT afters text[]
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    _group record;
    _turns integer[] := '{}';
    _keys text[] := '{}';
    _running integer[] := '{}';
    _places integer[] := '{}';
    _ends integer[] := '{}';
    _seqs bigint[] := '{}';
    _name_places integer[] := '{}';
    _deaths integer[] := '{}';
    _totals bigint[];
    _looked boolean := false;
    _progress boolean := true;
    _taken integer := 0;
    _at integer;
    _next integer;
BEGIN
    afters := _afters;
    FOR _group IN
        SELECT * FROM bide.groups_within_limits(_queues, _names, _mosts, _limit, _now, _queue_limits, _key_limits)
    LOOP
        _turns := _turns || _group.turn;
        _keys := array_append(_keys, _group.key);
        _running := _running || _group.running;
        _places := _places || cardinality(_seqs) + 1;
        _seqs := _seqs || _group.seqs;
        _name_places := _name_places || _group.name_places;
        _deaths := _deaths || _group.deaths;
        _ends := _ends || cardinality(_seqs);
    END LOOP;
    SELECT array_agg(CASE WHEN queue_limit IS NULL THEN 0 ELSE
            (SELECT coalesce(sum(r.count), 0) FROM bide.running_by_limit_key(queue, _now) AS r) END ORDER BY turn)
    INTO _totals FROM unnest(_queues, _queue_limits) WITH ORDINALITY AS given(queue, queue_limit, turn);
    WHILE _progress AND _taken < _limit LOOP
        _progress := false;
        FOR _turn IN 1..cardinality(_queues) LOOP
            EXIT WHEN _taken = _limit;
            LOOP
                EXIT WHEN _totals[_turn] >= _queue_limits[_turn];
                SELECT place INTO _at FROM generate_subscripts(_turns, 1) AS place
                WHERE _turns[place] = _turn AND _places[place] <= _ends[place]
                    AND coalesce(_keys[place] IS NULL OR _running[place] < _key_limits[_turn], true)
                ORDER BY _running[place], coalesce(coalesce(_keys[place], '') COLLATE "C" <= afters[_turn], false),
                    coalesce(_keys[place], '') COLLATE "C", _keys[place] IS NOT NULL
                LIMIT 1;
                EXIT WHEN NOT FOUND;
                _next := _places[_at];
                _places[_at] := _next + 1;
                CONTINUE WHEN _looked AND _deaths[_next] >= 2 OR _mosts[_name_places[_next]] <= 0;
                chosen := chosen || _seqs[_next];
                IF _queue_limits[_turn] IS NOT NULL OR _key_limits[_turn] IS NOT NULL THEN
                    afters[_turn] := coalesce(_keys[_at], '');
                    _running[_at] := _running[_at] + 1;
                END IF;
                IF _deaths[_next] >= 2 THEN  -- the first of all killed workers: it goes alone
                    RETURN;
                END IF;
                _looked := true;
                _totals[_turn] := _totals[_turn] + 1;
                _mosts[_name_places[_next]] := _mosts[_name_places[_next]] - 1;
                _taken := _taken + 1;
                _progress := true;
                EXIT;
            END LOOP;
        END LOOP;
    END LOOP;
END $$;

-- The kinds of items of these queues and names of which any is ready, and the first of each. A kind is a queue and name
-- with limit keys or without, as the indexes are.
CREATE FUNCTION bide.ready_kinds(_queues text[], _names text[], _mosts integer[])
RETURNS TABLE (turn integer, queue text, name text, most integer, keyed boolean, first bigint, deaths integer)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.turn::integer, q.queue, n.name, n.most, c.keyed, c.seq, c.deaths
    FROM unnest(_queues) WITH ORDINALITY AS q(queue, turn)
    CROSS JOIN unnest(_names, _mosts) AS n(name, most)
    CROSS JOIN LATERAL (
        (SELECT false AS keyed, w.seq, w.deaths FROM bide.work_items AS w
         WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NULL
         ORDER BY w.rank, w.seq LIMIT 1)
        UNION ALL
        (SELECT true, w.seq, w.deaths FROM bide.work_items AS w
         WHERE w.state = 'ready' AND w.queue = q.queue AND w.name = n.name AND w.limit_key IS NOT NULL
         ORDER BY w.rank, w.seq LIMIT 1)) AS c;
END $$;

-- How many items of which of these kinds a fetch takes where names are bounded within one queue only: urgent and old
-- ones first, queues in turn, and an item that killed workers alone. Nothing is locked.
CREATE FUNCTION bide.choose_kinds(
    _turns integer[], _queues text[], _names text[], _mosts integer[], _keyed boolean[], _limit integer, _now bigint
) RETURNS TABLE (queue text, name text, keyed boolean, count integer, alone bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH candidates AS MATERIALIZED (
        SELECT k.turn, k.queue, k.name, k.keyed, c.* FROM unnest(_turns, _queues, _names, _mosts, _keyed)
            AS k(turn, queue, name, most, keyed)
        CROSS JOIN LATERAL (
            (SELECT w.rank, w.seq, w.deaths FROM bide.work_items AS w
             WHERE w.state = 'ready' AND w.queue = k.queue AND w.name = k.name AND w.limit_key IS NULL
                AND (w.expires_at IS NULL OR w.expires_at > _now)
             ORDER BY w.rank, w.seq LIMIT CASE WHEN k.keyed THEN 0 ELSE k.most END)
            UNION ALL
            (SELECT w.rank, w.seq, w.deaths FROM bide.work_items AS w
             WHERE w.state = 'ready' AND w.queue = k.queue AND w.name = k.name AND w.limit_key IS NOT NULL
                AND (w.expires_at IS NULL OR w.expires_at > _now)
             ORDER BY w.rank, w.seq LIMIT CASE WHEN k.keyed THEN k.most ELSE 0 END)) AS c
    ), first AS MATERIALIZED (
        SELECT * FROM candidates ORDER BY turn, rank, seq LIMIT 1
    ), rounds AS (
        SELECT c.*, row_number() OVER (PARTITION BY c.turn ORDER BY c.rank, c.seq) AS round FROM candidates AS c
        WHERE c.deaths < 2
    ), by_name AS (  -- a name may be of two kinds, and is bounded all the same
        SELECT r.*, row_number() OVER (PARTITION BY r.turn, r.name ORDER BY r.rank, r.seq) AS place FROM rounds AS r
    ), chosen AS (
        SELECT r.queue, r.name, r.keyed FROM by_name AS r
        WHERE (SELECT first.deaths FROM first) < 2
            AND r.place <= (SELECT max(k.most) FROM unnest(_names, _mosts) AS k(name, most) WHERE k.name = r.name)
        ORDER BY r.round, r.turn LIMIT _limit
    )
    SELECT chosen.queue, chosen.name, chosen.keyed, count(*)::integer, NULL::bigint FROM chosen
    GROUP BY chosen.queue, chosen.name, chosen.keyed
    UNION ALL
    SELECT first.queue, first.name, first.keyed, 1, first.seq FROM first WHERE first.deaths >= 2;
END $$;

-- Lock so many of each kind, urgent and old ones first, whichever nobody else has; or the one that goes alone.
CREATE FUNCTION bide.lock_kinds(
    _queues text[], _names text[], _keyed boolean[], _counts integer[], _alone bigint, _now bigint
) RETURNS TABLE (rank bigint, seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF _alone IS NOT NULL THEN
        RETURN QUERY SELECT w.rank, w.seq FROM bide.work_items AS w WHERE w.seq = _alone AND w.state = 'ready'
                     FOR UPDATE SKIP LOCKED;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT l.rank, l.seq FROM unnest(_queues, _names, _keyed, _counts) AS k(queue, name, keyed, count)
    CROSS JOIN LATERAL (
        SELECT w.rank, w.seq FROM bide.work_items AS w
        WHERE w.state = 'ready' AND w.queue = k.queue AND w.name = k.name AND w.limit_key IS NULL
            AND (w.expires_at IS NULL OR w.expires_at > _now) AND w.deaths < 2
        ORDER BY w.rank, w.seq LIMIT CASE WHEN k.keyed THEN 0 ELSE k.count END FOR UPDATE SKIP LOCKED) AS l;
    IF true = ANY (_keyed) THEN
        RETURN QUERY
        SELECT l.rank, l.seq FROM unnest(_queues, _names, _keyed, _counts) AS k(queue, name, keyed, count)
        CROSS JOIN LATERAL (
            SELECT w.rank, w.seq FROM bide.work_items AS w
            WHERE w.state = 'ready' AND w.queue = k.queue AND w.name = k.name AND w.limit_key IS NOT NULL
                AND (w.expires_at IS NULL OR w.expires_at > _now) AND w.deaths < 2
            ORDER BY w.rank, w.seq LIMIT CASE WHEN k.keyed THEN k.count ELSE 0 END FOR UPDATE SKIP LOCKED) AS l;
    END IF;
END $$;
