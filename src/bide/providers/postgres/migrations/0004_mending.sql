-- Mending by hand, retention, and sending again.

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
            attempts = 0, deaths = 0, error = NULL, ended_at = NULL, hold_ms = 0,
            visible_at = _now, enqueued_at = _now, rank = _now - priority * 60000, expires_at = _now + within_ms
        WHERE id = ANY (_ids) AND state IN ('done', 'dead')
        RETURNING id, queue, order_key
    )
    SELECT array_agg(id), array_agg(queue), array_agg(order_key) INTO _begun, _queues, _keys FROM begun;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN QUERY SELECT unnest(_begun);
END $$;

-- Bury items that wait; their ids.
CREATE FUNCTION bide.discard(_ids text[], _reason text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
    _buried text[];
    _queues text[];
    _keys text[];
BEGIN
    WITH buried AS (
        UPDATE bide.work_items SET state = 'dead', ended_at = _now, error = _reason
        WHERE id = ANY (_ids) AND state IN ('ready', 'waiting', 'blocked')
        RETURNING id, queue, order_key
    )
    SELECT array_agg(id), array_agg(queue), array_agg(order_key) INTO _buried, _queues, _keys FROM buried;
    IF array_remove(_keys, NULL) <> '{}' THEN
        PERFORM bide.line_up(_queues, _keys, _now);
    END IF;
    RETURN QUERY SELECT unnest(_buried);
END $$;

-- Bury what is past its life and remove what ended so long ago, up to a limit of each kind.
CREATE FUNCTION bide.prune(_retention_ms bigint, _limit integer)
RETURNS TABLE (events integer, items integer, expired integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
    _events integer;
    _items integer;
BEGIN
    DELETE FROM bide.events AS e USING (
        SELECT old.seq FROM bide.events AS old
        WHERE old.created_at < _now - _retention_ms
            AND NOT EXISTS (SELECT 1 FROM bide.polls WHERE polls.name = old.poll AND polls.event_id = old.id)
        ORDER BY old.created_at LIMIT _limit FOR UPDATE SKIP LOCKED) AS gone
    WHERE e.seq = gone.seq;
    GET DIAGNOSTICS _events = ROW_COUNT;
    DELETE FROM bide.work_items AS w USING (
        SELECT old.seq FROM bide.work_items AS old
        WHERE old.ended_at IS NOT NULL AND old.ended_at < _now - _retention_ms
        ORDER BY old.ended_at LIMIT _limit FOR UPDATE SKIP LOCKED) AS gone
    WHERE w.seq = gone.seq;
    GET DIAGNOSTICS _items = ROW_COUNT;
    RETURN QUERY SELECT _events, _items, bide.bury_past_life(_now, _limit);
END $$;

-- End subscriptions, and the deliveries that wait for them; the names of those that lived.
CREATE FUNCTION bide.end_subscriptions(_names text[], _reason text, _why text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.lock_events();  -- nobody fans out to them meanwhile
    _ended text[];
BEGIN
    WITH ended AS (
        UPDATE bide.subscriptions SET ended_at = _now, ended_reason = _reason
        WHERE name = ANY (_names) AND ended_at IS NULL
        RETURNING name
    )
    SELECT array_agg(name) INTO _ended FROM ended;
    UPDATE bide.work_items SET state = 'dead', ended_at = _now, error = _why
    WHERE queue = 'deliveries' AND state IN ('ready', 'waiting', 'blocked') AND name = ANY (_ended);
    RETURN QUERY SELECT unnest(_ended);
END $$;
