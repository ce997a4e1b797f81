-- Runs by day and tenant, for searches and statistics over a range of time: runs is sorted by thread, so that every
-- such question reads it whole. The day comes first, so that a day of all tenants is one range, too.
--
-- The table holds what those questions ask for and nothing else. A materialized view copies rows of runs into it; the
-- last statement copies those that are there already. A run whose start has moved to another day has two rows here, and tombstones
-- know no start: readers take of the runs that this can be true of the row that runs has (docs/adr/017-runs-by-time.md).

CREATE TABLE IF NOT EXISTS runs_by_time /* on cluster */
(
    tenant                 String COMMENT 'the tenant' CODEC(ZSTD(1)),
    raw_partition          Int32 COMMENT 'partition of skein.events' CODEC(ZSTD(1)),
    raw_first              Int64 COMMENT 'offset of the first event' CODEC(ZSTD(1)),
    raw_events             Int64 COMMENT 'events that were folded; while there are none, the start may change' CODEC(ZSTD(1)),
    run_hash               UInt64 COMMENT 'sipHash64(tenant, thread_id, run_id)' CODEC(NONE),
    version                UInt64 COMMENT 'offset of the record in skein.runs' CODEC(Delta, ZSTD(1)),
    thread_id              String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id                 String COMMENT 'the run' CODEC(ZSTD(1)),
    depth                  UInt32 COMMENT 'runs between this one and its root; 0 of a root' CODEC(ZSTD(1)),
    status                 LowCardinality(String) COMMENT 'running, finished, error, interrupted, cancelled or abandoned',
    agent                  LowCardinality(String) COMMENT 'who produced the run',
    labels                 Map(LowCardinality(String), String) COMMENT 'labels of the run, by key' CODEC(ZSTD(1)),
    error_code             LowCardinality(String) COMMENT 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    cancelled_by           LowCardinality(String) COMMENT 'who ended a cancelled run: agent or skein',
    started_at             DateTime64(3, 'UTC') COMMENT 'start of the run, by its events, else by Kafka' CODEC(Delta, ZSTD(1)),
    time_to_first_token_ms Nullable(Int64) COMMENT 'milliseconds from the start to the first text; NULL where there is none' CODEC(ZSTD(1)),
    duration_ms            Nullable(Int64) COMMENT 'milliseconds from the start to the end' CODEC(ZSTD(1)),
    open_interrupts        UInt32 COMMENT 'interrupts that the run ended with' CODEC(ZSTD(1)),
    event_bytes_sum        Int64 COMMENT 'bytes of events' CODEC(ZSTD(1)),
    tool_calls             Map(LowCardinality(String), Int64) COMMENT 'tool calls by name' CODEC(ZSTD(1)),
    tool_calls_sum         Int64 COMMENT 'tool calls' CODEC(ZSTD(1)),
    anomalies              Map(LowCardinality(String), Int64) COMMENT 'violations of the protocol by rule' CODEC(ZSTD(1)),
    anomalies_sum          Int64 COMMENT 'violations of the protocol' CODEC(ZSTD(1)),
    models                 Array(LowCardinality(String)) COMMENT 'models that reported token usage, sorted' CODEC(ZSTD(1)),
    model_input_tokens     Array(Int64) COMMENT 'input tokens, in the order of models' CODEC(ZSTD(1)),
    model_output_tokens    Array(Int64) COMMENT 'output tokens, in the order of models' CODEC(ZSTD(1)),
    input_tokens           Int64 COMMENT 'input tokens of all models' CODEC(ZSTD(1)),
    output_tokens          Int64 COMMENT 'output tokens of all models' CODEC(ZSTD(1)),
    total_tokens           Int64 COMMENT 'tokens in total, as the models reported them' CODEC(ZSTD(1)),
    head                   String COMMENT 'what lineage tells of the run, as JSON' CODEC(ZSTD(3)),
    INDEX unsure raw_events TYPE minmax GRANULARITY 8,
    INDEX thread thread_id TYPE bloom_filter(0.01) GRANULARITY 4
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (toDate32(started_at), tenant, run_hash)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 1000
COMMENT 'Runs by day and tenant, with the columns that questions over time need. Ask v_runs_by_time.';

CREATE MATERIALIZED VIEW IF NOT EXISTS runs_to_time /* on cluster */ TO runs_by_time AS
SELECT
    tenant, raw_partition, raw_first, raw_events, sipHash64(tenant, thread_id, run_id) AS run_hash, version, thread_id, run_id, depth, status, agent,
    labels, error_code, cancelled_by, started_at, time_to_first_token_ms, duration_ms, open_interrupts, event_bytes_sum, tool_calls, tool_calls_sum,
    anomalies, anomalies_sum, models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens, head
FROM runs
WHERE deleted = 0;

ALTER TABLE runs /* on cluster */ ADD INDEX IF NOT EXISTS tombstone deleted TYPE minmax GRANULARITY 8;

ALTER TABLE runs /* on cluster */ MATERIALIZE INDEX IF EXISTS tombstone;

CREATE VIEW IF NOT EXISTS v_runs_by_time /* on cluster */ AS
SELECT
    tenant, thread_id, run_id, depth, status, agent, labels, error_code, cancelled_by, started_at, time_to_first_token_ms, duration_ms,
    open_interrupts, event_bytes_sum AS event_bytes, tool_calls, tool_calls_sum, anomalies, anomalies_sum,
    models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens, raw_partition, raw_first, version
FROM runs_by_time FINAL
WHERE run_hash NOT IN (
    SELECT sipHash64(tenant, thread_id, run_id) FROM runs WHERE deleted = 1
    UNION ALL
    SELECT run_hash FROM runs_by_time WHERE raw_events = 0)
   OR (run_hash, version) IN (
    SELECT sipHash64(tenant, thread_id, run_id), version
    FROM runs FINAL
    WHERE (tenant, thread_id, run_id) IN (
        SELECT tenant, thread_id, run_id FROM runs WHERE deleted = 1
        UNION ALL
        SELECT tenant, thread_id, run_id FROM runs_by_time WHERE raw_events = 0));

ALTER TABLE v_runs_by_time /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS depth 'runs between this one and its root; 0 of a root',
    COMMENT COLUMN IF EXISTS status 'running, finished, error, interrupted, cancelled or abandoned',
    COMMENT COLUMN IF EXISTS agent 'who produced the run',
    COMMENT COLUMN IF EXISTS labels 'labels of the run, by key',
    COMMENT COLUMN IF EXISTS error_code 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    COMMENT COLUMN IF EXISTS cancelled_by 'who ended a cancelled run: agent or skein',
    COMMENT COLUMN IF EXISTS started_at 'start of the run, by its events, else by Kafka',
    COMMENT COLUMN IF EXISTS time_to_first_token_ms 'milliseconds from the start to the first text; NULL where there is none',
    COMMENT COLUMN IF EXISTS duration_ms 'milliseconds from the start to the end',
    COMMENT COLUMN IF EXISTS open_interrupts 'interrupts that the run ended with',
    COMMENT COLUMN IF EXISTS event_bytes 'bytes of events',
    COMMENT COLUMN IF EXISTS tool_calls 'tool calls by name',
    COMMENT COLUMN IF EXISTS tool_calls_sum 'tool calls',
    COMMENT COLUMN IF EXISTS anomalies 'violations of the protocol by rule',
    COMMENT COLUMN IF EXISTS anomalies_sum 'violations of the protocol',
    COMMENT COLUMN IF EXISTS models 'models that reported token usage, sorted',
    COMMENT COLUMN IF EXISTS model_input_tokens 'input tokens, in the order of models',
    COMMENT COLUMN IF EXISTS model_output_tokens 'output tokens, in the order of models',
    COMMENT COLUMN IF EXISTS input_tokens 'input tokens of all models',
    COMMENT COLUMN IF EXISTS output_tokens 'output tokens of all models',
    COMMENT COLUMN IF EXISTS total_tokens 'tokens in total, as the models reported them',
    COMMENT COLUMN IF EXISTS raw_partition 'partition of skein.events',
    COMMENT COLUMN IF EXISTS raw_first 'offset of the first event',
    COMMENT COLUMN IF EXISTS version 'offset of the record in skein.runs';

INSERT INTO runs_by_time /* may run again */
SELECT
    tenant, raw_partition, raw_first, raw_events, sipHash64(tenant, thread_id, run_id) AS run_hash, version, thread_id, run_id, depth, status, agent,
    labels, error_code, cancelled_by, started_at, time_to_first_token_ms, duration_ms, open_interrupts, event_bytes_sum, tool_calls, tool_calls_sum,
    anomalies, anomalies_sum, models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens, head
FROM runs FINAL;
