-- The lineage store: runs, messages and states. A row is a pure function of one record of
-- skein.runs; version is that record's offset. Rows of messages and states count only where their
-- version equals that of the run's row. Ids are compared byte by byte. Times are Unix milliseconds.

CREATE TABLE runs (
    tenant        TEXT    NOT NULL,
    thread_id     TEXT    NOT NULL,
    run_id        TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    deleted       INTEGER NOT NULL, -- 1: a tombstone; it stays, so that an older record cannot come back
    status        TEXT    NOT NULL,
    branch_id     TEXT    NOT NULL,
    message_count INTEGER NOT NULL,
    started_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    raw_partition INTEGER NOT NULL,
    raw_first     INTEGER NOT NULL,
    raw_next      INTEGER NOT NULL,
    record        TEXT    NOT NULL, -- the run record without messages, state and open fold
    PRIMARY KEY (tenant, thread_id, run_id)
) STRICT;

-- The runs of a thread in their order, and the one with the latest start.
CREATE INDEX runs_by_start ON runs (tenant, thread_id, raw_first, run_id) WHERE deleted = 0;

-- How far a tenant's events are indexed, by partition.
CREATE INDEX runs_by_position ON runs (tenant, raw_partition, raw_next) WHERE deleted = 0;

CREATE TABLE messages (
    tenant     TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    input      INTEGER NOT NULL, -- 0: own message, 1: message of the input
    idx        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    raw        TEXT    NOT NULL,
    PRIMARY KEY (tenant, thread_id, run_id, input, idx)
) STRICT;

-- One row for every run whose contents are there, also where the state is unchanged (NULL).
CREATE TABLE states (
    tenant    TEXT    NOT NULL,
    thread_id TEXT    NOT NULL,
    run_id    TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    state     TEXT,
    PRIMARY KEY (tenant, thread_id, run_id)
) STRICT;
