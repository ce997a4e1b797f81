-- The lineage store: runs, messages, states and positions. A row is a pure function of one record of
-- skein.runs, and version is that record's offset. ReplacingMergeTree keeps the row of the greatest
-- version for each sorting key; readers ask with FINAL, since merges come when they come.
--
-- There is no PARTITION BY: a key that never changes for a run can only be made from its ids, and
-- splitting by a hash of those would cost every read of a thread and every insert block more than it
-- saves. So an insert block lies in one table partition by itself.
--
-- Granules are small, since one thread is what is read most and its rows are wide: with 128 rows a lineage of ten runs reads 0.6 MB,
-- with 512 it reads 3.4 MB (docs/bench/analytics.md). A database that was made with 512 keeps them until skein migrate --rebuild.

CREATE TABLE IF NOT EXISTS schema_migrations /* on cluster */
(
    version    UInt32,
    name       String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = /* replicated */ReplacingMergeTree
ORDER BY version;

-- One row a run. Times that DateTime64 cannot say are the nearest that it can; record has them exactly.
CREATE TABLE IF NOT EXISTS runs /* on cluster */
(
    tenant                    String,
    thread_id                 String,
    run_id                    String,
    version                   UInt64,
    deleted                   UInt8, -- 1: a tombstone; it stays, so that an older record cannot come back

    given_run_id              String,
    parent_run_id             String,
    parent_by                 LowCardinality(String),
    spawned_by                String,
    branch_id                 String,
    root_run_id               String,
    base                      String,
    depth                     UInt32,

    status                    LowCardinality(String),
    synthetic                 Bool,
    truncated                 Bool,
    raw_lost                  Bool,
    started_at                DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    ended_at                  Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    updated_at                DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), -- ended_at, else started_at
    time_to_first_token_ms    Nullable(Int64) CODEC(ZSTD(1)),
    duration_ms               Nullable(Int64) CODEC(ZSTD(1)),

    raw_partition             Int32,
    raw_first                 Int64 CODEC(Delta, ZSTD(1)),
    raw_next                  Int64 CODEC(Delta, ZSTD(1)),
    raw_events                Int64 CODEC(ZSTD(1)), -- folded events

    message_count             UInt32, -- in the history at the run's end
    own_messages              UInt32, -- the rows that messages has of this version, once it is not running
    input_messages            UInt32,
    open_interrupts           UInt32,
    pending_tool_calls        UInt32,
    resumes                   UInt32,

    -- Counts come from agents, who may send anything: hence signed.
    events                    Map(LowCardinality(String), Int64), -- by event type
    event_bytes               Map(LowCardinality(String), Int64),
    event_bytes_sum           Int64,
    tool_calls                Map(LowCardinality(String), Int64), -- by tool
    tool_calls_sum            Int64,
    anomalies                 Map(LowCardinality(String), Int64), -- by rule
    anomalies_sum             Int64,
    models                    Array(LowCardinality(String)), -- token usage by model, sorted; '' where none is named
    model_input_tokens        Array(Int64),
    model_output_tokens       Array(Int64),
    model_total_tokens        Array(Int64),
    input_tokens              Int64,
    output_tokens             Int64,
    total_tokens              Int64,
    reasoning_tokens          Int64,
    cached_input_tokens       Int64,
    cache_write_input_tokens  Int64,
    fold_version              UInt32,

    record                    String CODEC(ZSTD(3)) -- the run record without messages, state and open fold
)
ENGINE = /* replicated */ReplacingMergeTree(version, deleted)
ORDER BY (tenant, thread_id, run_id)
SETTINGS index_granularity = 128, non_replicated_deduplication_window = 1000;

-- The messages that a run has added or changed, and those of its input. A row counts only where its
-- version is that of the run's row, and only if all rows of that version are there: a newer version
-- may have replaced some of an older one's.
CREATE TABLE IF NOT EXISTS messages /* on cluster */
(
    tenant     String,
    thread_id  String,
    run_id     String,
    input      UInt8,  -- 0: own message, 1: message of the input
    idx        UInt32, -- in its list
    version    UInt64,
    message_id String,
    role       LowCardinality(String),
    raw        String CODEC(ZSTD(3)) -- the message's JSON, byte for byte
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, input, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000;

-- One row for every run whose contents are there. No state's JSON is empty: '' says that the run left
-- the state as its base has it.
CREATE TABLE IF NOT EXISTS states /* on cluster */
(
    tenant    String,
    thread_id String,
    run_id    String,
    version   UInt64,
    state     String CODEC(ZSTD(3))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id)
SETTINGS index_granularity = 128, non_replicated_deduplication_window = 1000;

-- How far a tenant's events are indexed: the greatest raw_next of a partition, written after the rows
-- that it speaks of. What progress records of skein.runs say holds for every tenant and has tenant ''.
-- A maximum comes out the same however often its rows are written, and readers that wait for a position
-- ask for it many times a second: in runs that would read all rows of the tenant.
CREATE TABLE IF NOT EXISTS positions /* on cluster */
(
    tenant        String, -- '': every tenant
    raw_partition Int32,
    raw_next      UInt64
)
ENGINE = /* replicated */ReplacingMergeTree(raw_next)
ORDER BY (tenant, raw_partition)
SETTINGS non_replicated_deduplication_window = 1000;
