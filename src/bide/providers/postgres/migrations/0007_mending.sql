-- Mending by hand, retention, and instants that happen once.

-- Make ended items ready, as if they had just been enqueued; their ids.
CREATE FUNCTION bide.begin_anew(_ids text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
    _begun text[];
    _queues text[];
    _keys text[];
BEGIN
    WITH begun AS (
        UPDATE bide.work_items SET
            state = CASE WHEN order_key IS NULL THEN 'ready' ELSE 'blocked' END,
            attempts = 0, deaths = 0, given_back = 0, error = NULL, result = NULL, ended_at = NULL, remove_at = NULL,
            hold_ms = 0, visible_at = _now, enqueued_at = _now, rank = _now - priority * 60000,
            expires_at = _now + within_ms
        WHERE id = ANY (_ids) AND state IN ('done', 'dead')
        RETURNING id, queue, order_key
    )
    SELECT array_agg(id), array_agg(queue), array_agg(order_key) INTO _begun, _queues, _keys FROM begun;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN QUERY SELECT unnest(_begun);
END $$;

-- Bury items that wait, or whose lock expired; their ids.
CREATE FUNCTION bide.discard(_ids text[], _reason text) RETURNS SETOF text LANGUAGE plpgsql AS $$
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
CREATE FUNCTION bide.purge(_queue text, _states text[], _limit integer, OUT count integer, OUT wakes boolean)
LANGUAGE plpgsql AS $$
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

-- Bury what is past its life and remove what ended so long ago, up to a limit of each kind. Who has a key stays while
-- the key is not free.
CREATE FUNCTION bide.prune(_retention_ms bigint, _limit integer)
RETURNS TABLE (events integer, items integer, expired integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _events integer;
    _done integer;
    _items integer;
BEGIN
    PERFORM bide.mend_locks(_now);
    DELETE FROM bide.events AS e USING (
        SELECT old.seq FROM bide.events AS old
        WHERE old.created_at < _now - _retention_ms
            AND NOT EXISTS (SELECT 1 FROM bide.polls WHERE polls.name = old.poll AND polls.event_id = old.id)
        ORDER BY old.created_at LIMIT _limit FOR UPDATE SKIP LOCKED) AS gone
    WHERE e.seq = gone.seq;
    GET DIAGNOSTICS _events = ROW_COUNT;
    DELETE FROM bide.work_items AS w USING (
        SELECT old.seq FROM bide.work_items AS old
        WHERE old.remove_at IS NOT NULL AND old.remove_at < _now
        ORDER BY old.remove_at LIMIT _limit FOR UPDATE SKIP LOCKED) AS gone
    WHERE w.seq = gone.seq;
    GET DIAGNOSTICS _done = ROW_COUNT;
    DELETE FROM bide.work_items AS w USING (
        SELECT old.seq FROM bide.work_items AS old
        WHERE old.ended_at IS NOT NULL AND old.remove_at IS NULL AND old.ended_at < _now - _retention_ms
            AND (old.key IS NULL OR old.ended_at < _now - 86400000)
        ORDER BY old.ended_at LIMIT _limit - _done FOR UPDATE SKIP LOCKED) AS gone
    WHERE w.seq = gone.seq;
    GET DIAGNOSTICS _items = ROW_COUNT;
    RETURN QUERY SELECT _events, _done + _items, bide.bury_past_life(_now, _limit);
END $$;

-- The last instant that happened of each schedule; of one that is new, or had another rule, what is given.
CREATE FUNCTION bide.occurred(_names text[], _rules text[], _afters bigint[])
RETURNS TABLE (name text, last_at bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO bide.schedules AS s (name, rule, last_at)
    SELECT g.name, g.rule, g.after FROM unnest(_names, _rules, _afters) AS g(name, rule, after)
    WHERE NOT EXISTS (SELECT 1 FROM bide.schedules AS kept WHERE kept.name = g.name AND kept.rule = g.rule)
    ORDER BY g.name
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, last_at = excluded.last_at WHERE s.rule <> excluded.rule;
    RETURN QUERY SELECT s.name, s.last_at FROM bide.schedules AS s WHERE s.name = ANY (_names);
END $$;

-- Keep an instant as the last of a schedule, unless that or a later one has happened; whether it was kept.
CREATE FUNCTION bide.occur(_name text, _at bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bide.schedules SET last_at = _at WHERE name = _name AND last_at < _at;
    RETURN FOUND;
END $$;
