-- The lineage store. A row is a pure function of one record of skein.runs; version is that record's offset. Rows of other tables than runs count only
-- where their version equals that of the run's row. The columns mean the same as in ClickHouse; see docs/sql.md. Ids are compared byte by byte. Times are
-- Unix milliseconds.

CREATE TABLE runs (
    tenant        TEXT    NOT NULL,
    thread_id     TEXT    NOT NULL,
    run_id        TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    deleted       INTEGER NOT NULL, -- 1: a tombstone; it stays, so that an older record cannot come back
    status        TEXT    NOT NULL,
    branch_id     TEXT    NOT NULL,
    spawned       INTEGER NOT NULL, -- 1: a run of the thread spawned the first run of the tree
    message_count INTEGER NOT NULL,
    started_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    raw_partition INTEGER NOT NULL,
    raw_first     INTEGER NOT NULL,
    raw_next      INTEGER NOT NULL,
    record        TEXT    NOT NULL, -- the run record without messages, state and open fold
    agent         TEXT    NOT NULL,
    error_code    TEXT    NOT NULL,
    error_message TEXT    NOT NULL,
    cancelled_by  TEXT    NOT NULL,
    asked         TEXT    NOT NULL,
    question      TEXT    NOT NULL,
    reply         TEXT    NOT NULL,
    resumed       TEXT    NOT NULL,
    recorded_at   INTEGER NOT NULL, -- by Kafka's clock: retention goes by it, as the times of events are by agents' clocks; 0: unknown
    PRIMARY KEY (tenant, thread_id, run_id)
) STRICT;

-- The runs of a thread in their order, and its tip.
CREATE INDEX runs_by_start ON runs (tenant, thread_id, raw_first, run_id) WHERE deleted = 0;
CREATE INDEX runs_tip ON runs (tenant, thread_id, spawned DESC, raw_first, run_id) WHERE deleted = 0;

-- The runs of a tenant in the order of their start, for searches.
CREATE INDEX runs_by_time ON runs (tenant, started_at, thread_id, run_id) WHERE deleted = 0;

-- How far a tenant's events are indexed, by partition.
CREATE INDEX runs_by_position ON runs (tenant, raw_partition, raw_next) WHERE deleted = 0;

CREATE TABLE messages (
    tenant     TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    input      INTEGER NOT NULL, -- 0: own message, 1: message of the input, 2: an error of the run or a tool, for searches
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

CREATE TABLE tool_calls (
    tenant         TEXT    NOT NULL,
    thread_id      TEXT    NOT NULL,
    run_id         TEXT    NOT NULL,
    idx            INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    tool_call_id   TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    message_id     TEXT    NOT NULL,
    made           INTEGER NOT NULL,
    agent          TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    started_at     INTEGER NOT NULL,
    argument_bytes INTEGER NOT NULL,
    answered       INTEGER NOT NULL,
    result_bytes   INTEGER NOT NULL,
    failed         INTEGER NOT NULL,
    error          TEXT    NOT NULL,
    pending        INTEGER NOT NULL,
    called_at      INTEGER, -- when the call began, and how many milliseconds it took to its result in the same run; NULL if the record does not say
    duration_ms    INTEGER,
    PRIMARY KEY (tenant, thread_id, run_id, idx)
) STRICT;

-- How far skein.events is indexed, by partition, for every tenant: what progress records of skein.runs say. The rows of runs say it only as far as
-- records of runs go, which repeats and dead letters do not change; and their erasure takes it back. version is the offset of the last progress record.
CREATE TABLE positions (
    partition INTEGER NOT NULL PRIMARY KEY,
    next      INTEGER NOT NULL,
    version   INTEGER NOT NULL
) STRICT;

-- Which threads were erased, as erasure records of skein.runs say: events of the thread below that offset of skein.events are erased. at_ms is the
-- record's time; version is its offset.
CREATE TABLE erasures (
    tenant    TEXT    NOT NULL,
    thread_id TEXT    NOT NULL,
    below     INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread_id)
) STRICT, WITHOUT ROWID;

-- Which skein.runs the rows are of: the id that the brokers have given to the topic. One row, once an indexer has
-- begun. Versions are offsets, and those of two topics cannot be compared.
CREATE TABLE sources (
    topic_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
