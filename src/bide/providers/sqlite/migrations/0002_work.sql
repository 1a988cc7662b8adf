-- Keys, results, limits over the fleet, instants of the user's, and schedules of which each instant happens once.

ALTER TABLE work_items ADD COLUMN key TEXT;               -- unique among items of one queue and name
ALTER TABLE work_items ADD COLUMN limit_key TEXT;         -- items that share the places of a limit
ALTER TABLE work_items ADD COLUMN keep_ms INTEGER;        -- how long its result is kept; NULL: it has none
ALTER TABLE work_items ADD COLUMN kept_until INTEGER;     -- of an ended one; NULL: as long as the retention says
ALTER TABLE work_items ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;  -- abandoned without counting the attempt
ALTER TABLE work_items ADD COLUMN result TEXT;
-- hold_ms is visible_at itself where that is an instant of the user's: it holds whatever was done to the clock.

CREATE TABLE schedules (
    name    TEXT NOT NULL PRIMARY KEY,
    rule    TEXT NOT NULL,
    last_at INTEGER NOT NULL                   -- the last instant that happened
) STRICT, WITHOUT ROWID;

-- An item passes through few indexes, and a change of its state touches no more of them than it must.
DROP INDEX work_ready;
DROP INDEX work_running;
DROP INDEX work_by_state;
DROP INDEX work_ended;
CREATE INDEX work_ready ON work_items (queue, name, rank, seq, visible_at)
    WHERE state = 'ready' AND limit_key IS NULL;
CREATE INDEX work_ready_keyed ON work_items (queue, name, rank, seq, visible_at)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX work_ready_by_key ON work_items (queue, name, limit_key, rank, seq)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX work_running ON work_items (locked_until, lock_ms, queue, name, limit_key) WHERE state = 'running';
CREATE UNIQUE INDEX work_keys ON work_items (queue, name, key) WHERE key IS NOT NULL;
CREATE INDEX work_living ON work_items (queue, seq) WHERE ended_at IS NULL;
CREATE INDEX work_ended ON work_items (queue, state, seq) WHERE ended_at IS NOT NULL;
CREATE INDEX work_old ON work_items (ended_at) WHERE ended_at IS NOT NULL AND kept_until IS NULL;
CREATE INDEX work_kept ON work_items (kept_until) WHERE kept_until IS NOT NULL;
