-- Polls, events and subscriptions.

-- Taking the polls that are due. One claim at a time, so that of many callers each gets what is left; a claim is
-- short. Rows on which an answer is being recorded at this moment are left for the next one.
CREATE FUNCTION bide.claim_polls(
    _names text[], _everies bigint[], _holds bigint[], _phases bigint[], _limit integer, _slack bigint
) RETURNS TABLE (
    name text, generation bigint, called_at bigint, due bigint, lag_ms bigint, failures integer, validators text,
    declaration text, validated_at bigint, digest text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint;
BEGIN
    PERFORM pg_advisory_xact_lock('bide.polls'::regclass::oid::bigint);
    _now := bide.now_ms();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(_names, _everies, _holds, _phases) AS asked(name, every_ms, hold_ms, phase)
    ), kept AS MATERIALIZED (
        SELECT asked.*, p.generation + 1 AS generation,
            CASE
                WHEN p.outstanding THEN greatest(_now - coalesce(p.not_before, _now), 0)
                ELSE greatest(_now - greatest(p.due, coalesce(p.not_before, p.due)), 0)
            END AS lag
        FROM asked JOIN bide.polls AS p ON p.name = asked.name
        WHERE NOT p.paused
            AND NOT (p.not_before IS NOT NULL AND _now < p.not_before AND p.not_before <= _now + 2 * p.hold_ms)
            AND (
                p.outstanding
                OR p.due <= _now + _slack
                OR (coalesce(p.every_ms > asked.every_ms, true) AND p.due > _now + asked.every_ms)
                OR p.due > _now + 2 * asked.every_ms)
        ORDER BY lag DESC, asked.name
        LIMIT _limit
        FOR UPDATE OF p SKIP LOCKED
    ), taken AS (
        SELECT * FROM kept
        UNION ALL
        SELECT asked.*, _now + 1, 0 FROM asked
        WHERE NOT EXISTS (SELECT 1 FROM bide.polls AS p WHERE p.name = asked.name)
        ORDER BY lag DESC, name
        LIMIT _limit
    )
    INSERT INTO bide.polls AS p (name, due, not_before, hold_ms, outstanding, every_ms, generation, called_at, lag_ms)
    SELECT t.name, least + (t.phase - least % t.every_ms + t.every_ms) % t.every_ms, _now + t.hold_ms, t.hold_ms, true,
        t.every_ms, t.generation, _now, t.lag
    FROM taken AS t CROSS JOIN LATERAL (SELECT _now + t.every_ms / 2 + 1) AS l(least)
    ORDER BY t.name
    ON CONFLICT (name) DO UPDATE SET
        due = excluded.due, not_before = excluded.not_before, hold_ms = excluded.hold_ms, outstanding = true,
        every_ms = excluded.every_ms, generation = excluded.generation, called_at = excluded.called_at,
        lag_ms = excluded.lag_ms
    WHERE NOT p.paused
    RETURNING p.name, p.generation, p.called_at, p.due, p.lag_ms, p.failures, p.validators, p.declaration,
        p.validated_at, p.digest;
END $$;

-- Record answers that say nothing new, each poll once: when each of them last changed.
CREATE FUNCTION bide.record_unchanged(
    _names text[], _generations bigint[], _holds bigint[], _validators text[], _declarations text[], _digests text[]
) RETURNS TABLE (name text, quiet_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now bigint := bide.now_ms();
BEGIN
    RETURN QUERY
    UPDATE bide.polls AS p SET
        outstanding = false,
        not_before = CASE WHEN a.hold_ms > 0 THEN _now + a.hold_ms END,
        hold_ms = a.hold_ms,
        failures = 0,
        failing_since = NULL,
        last_error = NULL,
        answered_at = _now,
        validators = a.validators,
        declaration = coalesce(a.declaration, p.declaration),
        validated_at = CASE WHEN a.digest IS NULL THEN p.validated_at ELSE _now END
    FROM unnest(_names, _generations, _holds, _validators, _declarations, _digests)
        AS a(name, generation, hold_ms, validators, declaration, digest)
    WHERE p.name = a.name AND p.generation = a.generation AND p.outstanding
        AND (a.digest IS NULL OR a.digest = p.digest)
    RETURNING p.name, CASE WHEN p.changed_at IS NOT NULL THEN greatest(_now - p.changed_at, 0) END;
END $$;

-- Record failures, each poll once; the names whose claim held.
CREATE FUNCTION bide.record_failed(_names text[], _generations bigint[], _holds bigint[], _errors text[])
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := bide.now_ms();
BEGIN
    RETURN QUERY
    UPDATE bide.polls AS p SET
        outstanding = false,
        due = _now,
        not_before = CASE WHEN f.hold_ms > 0 THEN _now + f.hold_ms END,
        hold_ms = f.hold_ms,
        failures = p.failures + 1,
        failing_since = coalesce(p.failing_since, _now),
        last_error = f.error
    FROM unnest(_names, _generations, _holds, _errors) AS f(name, generation, hold_ms, error)
    WHERE p.name = f.name AND p.generation = f.generation AND p.outstanding
    RETURNING p.name;
END $$;

-- Events are put in one transaction after the other, so that whoever reads them in order of seq misses none; the
-- store's time once it is our turn.
CREATE FUNCTION bide.lock_events() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock('bide.events'::regclass::oid::bigint);
    RETURN bide.now_ms();
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
