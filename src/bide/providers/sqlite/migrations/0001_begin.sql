-- Instants are milliseconds since the Unix epoch by the clock of the machine, durations milliseconds.

CREATE TABLE meta (
    schema_version INTEGER NOT NULL,           -- the last migration that was applied
    written_by     TEXT NOT NULL               -- the version of bide that applied it
) STRICT;

CREATE TABLE polls (
    name          TEXT NOT NULL PRIMARY KEY,   -- "<connection>.<poll>"
    due           INTEGER NOT NULL,
    not_before    INTEGER,                     -- the end of a hold: a call that is out, a failure, a hint
    hold_ms       INTEGER NOT NULL DEFAULT 0,  -- how long that hold was when it was set
    outstanding   INTEGER NOT NULL DEFAULT 0,  -- 1: claimed, and not recorded yet
    every_ms      INTEGER,
    generation    INTEGER NOT NULL DEFAULT 0,
    digest        TEXT,
    changed_at    INTEGER,
    called_at     INTEGER,
    answered_at   INTEGER,
    lag_ms        INTEGER NOT NULL DEFAULT 0,  -- how long it had been due when it was last claimed
    validators    TEXT,                        -- JSON: etag, last_modified
    declaration   TEXT,                        -- the hash under which the validators are good
    validated_at  INTEGER,                     -- when an answer last came whole
    failures      INTEGER NOT NULL DEFAULT 0,  -- in a row
    failing_since INTEGER,
    last_error    TEXT,
    paused        INTEGER NOT NULL DEFAULT 0,
    event_id      TEXT                         -- the last event
) STRICT, WITHOUT ROWID;

CREATE TABLE subscriptions (
    name         TEXT NOT NULL PRIMARY KEY,
    event        TEXT NOT NULL,                -- "<package>.<event>"
    kind         TEXT NOT NULL,                -- function, webhook, command
    target       TEXT NOT NULL,
    within_ms    INTEGER NOT NULL,
    ordered      INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER,
    created_at   INTEGER NOT NULL,
    declared_at  INTEGER NOT NULL,
    ended_at     INTEGER,
    ended_reason TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX subscriptions_living ON subscriptions (event) WHERE ended_at IS NULL;

CREATE TABLE events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,                 -- "<package>.<event>"
    poll        TEXT NOT NULL,
    payload     TEXT NOT NULL,                 -- canonical JSON
    digest      TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    occurred_at INTEGER,
    previous_id TEXT
) STRICT;

CREATE INDEX events_by_name ON events (name, seq);
CREATE INDEX events_by_age ON events (created_at);

CREATE TABLE work_items (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    queue        TEXT NOT NULL,
    name         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('ready', 'waiting', 'blocked', 'running', 'done', 'dead')),
                                               -- waiting: until visible_at; blocked: behind its order_key
    payload      TEXT NOT NULL,
    priority     INTEGER NOT NULL DEFAULT 0,
    rank         INTEGER NOT NULL,             -- visible_at less a minute for each step of priority
    visible_at   INTEGER NOT NULL,
    hold_ms      INTEGER NOT NULL DEFAULT 0,   -- the delay that visible_at was made from
    attempts     INTEGER NOT NULL DEFAULT 0,
    deaths       INTEGER NOT NULL DEFAULT 0,   -- attempts that ended because the lock expired
    max_attempts INTEGER,
    within_ms    INTEGER,
    expires_at   INTEGER,
    order_key    TEXT,
    token        TEXT,                         -- "<seq>:<fetch>", while running
    fetch_token  TEXT,
    locked_until INTEGER,
    lock_ms      INTEGER,
    enqueued_at  INTEGER NOT NULL,
    ended_at     INTEGER,
    error        TEXT
) STRICT;

-- Each serves one question, over the rows it concerns: a million done items make none of them slower.
CREATE INDEX work_ready ON work_items (queue, name, rank, seq, visible_at) WHERE state = 'ready';
CREATE INDEX work_waiting ON work_items (queue, name, visible_at) WHERE state = 'waiting';
CREATE INDEX work_set_back ON work_items (queue, name, visible_at - 2 * hold_ms) WHERE state = 'waiting';
CREATE INDEX work_running ON work_items (locked_until, lock_ms, queue, name) WHERE state = 'running';
CREATE INDEX work_front ON work_items (queue, order_key, seq)
    WHERE order_key IS NOT NULL AND state IN ('ready', 'waiting', 'running');
CREATE INDEX work_blocked ON work_items (queue, order_key, seq)
    WHERE order_key IS NOT NULL AND state = 'blocked';
CREATE INDEX work_expiring ON work_items (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('ready', 'waiting', 'blocked');
CREATE INDEX work_by_state ON work_items (queue, state, seq);
CREATE INDEX work_ended ON work_items (ended_at) WHERE ended_at IS NOT NULL;
