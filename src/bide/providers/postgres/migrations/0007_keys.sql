-- Keys, results, limits over the fleet, and periodic schedules.

ALTER TABLE bide.work_items
    ADD key        text COLLATE "C",               -- idempotency: one item of a queue and name at a time has it
    ADD limit_key  text COLLATE "C",
    ADD keep_ms    bigint,                         -- for how long a done item stays with its result
    ADD result     text,
    ADD given_back integer NOT NULL DEFAULT 0,     -- times that it was abandoned without counting the attempt
    ADD limited    boolean NOT NULL DEFAULT false, -- fetched under a limit of its queue: its end frees a place
    ADD remove_at  bigint,                         -- from when on a done item may be removed, where it says so itself
    DROP within_text;

-- The token of a running item is "<seq>:<fetch>"; what is kept of it is the part that the row does not tell.
UPDATE bide.work_items SET token = split_part(token, ':', 2) WHERE state = 'running';
COMMENT ON COLUMN bide.work_items.token IS 'names the fetch that has it, while running';
COMMENT ON COLUMN bide.work_items.hold_ms IS
    'the delay that visible_at was made from; visible_at itself where the user gave the instant';

CREATE UNIQUE INDEX work_keys ON bide.work_items (queue, name, key) WHERE key IS NOT NULL;

-- Ready items lie in one index or, with a limit key, in two others, so that most pay for one alone.
DROP INDEX bide.work_ready;
CREATE INDEX work_ready ON bide.work_items (queue, name, rank, seq) WHERE state = 'ready' AND limit_key IS NULL;
CREATE INDEX work_ready_keyed ON bide.work_items (queue, name, rank, seq)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX work_ready_by_limit_key ON bide.work_items (queue, name, limit_key, rank, seq)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX work_running_by_limit_key ON bide.work_items (queue, limit_key)
    WHERE state = 'running' AND limit_key IS NOT NULL;
CREATE INDEX work_removable ON bide.work_items (remove_at) WHERE remove_at IS NOT NULL;
DROP INDEX bide.work_ended;
CREATE INDEX work_ended ON bide.work_items (ended_at) WHERE ended_at IS NOT NULL AND remove_at IS NULL;

-- What passes through quickly is in as few indexes as can be: each version of a row costs an entry in each of them.
DROP INDEX bide.work_running_set_back;
DROP INDEX bide.work_by_state;
CREATE INDEX work_by_state ON bide.work_items (queue, state, seq) WHERE state NOT IN ('ready', 'running');

CREATE TABLE bide.schedules (
    name    text COLLATE "C" PRIMARY KEY,
    rule    text NOT NULL,
    last_at bigint NOT NULL                        -- the last instant that happened
);

-- A duration as people read it: 1h30m, 1.5ms, 0s.
CREATE FUNCTION bide.duration_text(_ms bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(nullif(string_agg(count || unit, '' ORDER BY place), ''), '0s') FROM (VALUES
    (1, 'd', _ms / 86400000), (2, 'h', _ms / 3600000 % 24), (3, 'm', _ms / 60000 % 60), (4, 's', _ms / 1000 % 60),
    (5, 'ms', _ms % 1000)) AS part(place, unit, count)
WHERE count > 0
$$;

-- Bury items whose whole life is over before anybody had them; how many.
CREATE OR REPLACE FUNCTION bide.bury_past_life(_now bigint, _limit integer) RETURNS integer LANGUAGE plpgsql AS $$
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
            error = bide.because('not delivered within ' || bide.duration_text(within_ms), error)
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

-- Locks that would last for ever, since the clock was set back after they were taken, get one more length, in which to
-- be renewed. To find them takes a look at everything that is running.
CREATE FUNCTION bide.mend_locks(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bide.work_items SET locked_until = _now + lock_ms
    WHERE state = 'running' AND locked_until - 2 * lock_ms > _now;
END $$;

-- Give back what its worker lost, counting the death; bury what is out of lives or attempts.
CREATE OR REPLACE FUNCTION bide.free_expired_locks(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
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
