-- The lineage store. A row is a pure function of one record of skein.runs, and version is that record's offset. ReplacingMergeTree keeps the row
-- of the greatest version for each sorting key; readers ask with FINAL, since merges come when they come.
--
-- There is no PARTITION BY: a key that never changes for a run can only be made from its ids, and splitting by a hash of those would cost every
-- read of a thread and every insert block more than it saves. So an insert block lies in one table partition by itself.
--
-- Granules are small, since one thread is what is read most and its rows are wide: with 128 rows a lineage of ten runs reads 0.6 MB, with 512 it
-- reads 3.4 MB. Ids and counts take half the bytes with ZSTD that they take with LZ4. Reads of a thread take a granule of each part, and each column
-- of it is a file of its own in a wide part: with one file for all columns, in parts below 64 MiB, a history costs 0.6 of the processor time. Larger
-- parts stay wide: they take a seventh less space, questions over many runs read single columns, and a deletion writes a mask beside them, where
-- it writes a compact part anew (docs/bench/analytics.md).
--
-- docs/sql.md is made from the comments of the columns.

CREATE TABLE IF NOT EXISTS schema_migrations /* on cluster */
(
    version    UInt32,
    name       String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = /* replicated */ReplacingMergeTree
ORDER BY version;

-- One row a run. Times that DateTime64 cannot say are the nearest that it can; head has them exactly. Counts come from agents, who may send
-- anything: hence signed. Of no column does a statement need the base, which cost 15 bytes a run beside parent_run_id. Records compress by a tenth
-- better in larger blocks; what is read of single threads is head, whose blocks stay small. Retention goes by recorded_at, Kafka's clock, as the times of
-- events are by agents' clocks, which may say anything.
CREATE TABLE IF NOT EXISTS runs /* on cluster */
(
    tenant                   String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id                String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id                   String COMMENT 'the run' CODEC(ZSTD(1)),
    version                  UInt64 COMMENT 'offset of the record in skein.runs' CODEC(ZSTD(1)),
    deleted                  UInt8 COMMENT '1: the run was erased; readers with FINAL do not see the row',
    client_run_id            String COMMENT 'the id as the agent gave it, where the run has another one',
    parent_run_id            String COMMENT 'the run of the same thread that this one goes on from; empty of a root' CODEC(ZSTD(1)),
    parent_by                LowCardinality(String) COMMENT 'how the parent was found: explicit, content, latest or none',
    spawned_by               String COMMENT 'a run that was named as the parent and spawned this one, or was no run of this thread',
    spawned                  Bool COMMENT 'a run of the thread spawned the first run of the tree',
    branch_id                String COMMENT 'id of the first run of the branch' CODEC(ZSTD(1)),
    root_run_id              String COMMENT 'id of the first run of the tree' CODEC(ZSTD(1)),
    depth                    UInt32 COMMENT 'runs between this one and its root; 0 of a root' CODEC(ZSTD(1)),
    status                   LowCardinality(String) COMMENT 'running, finished, error, interrupted, cancelled or abandoned',
    synthetic                Bool COMMENT 'Skein wrote the end of the run',
    truncated                Bool COMMENT 'the record was cut at the limit of its size; skein.events has all',
    raw_lost                 Bool COMMENT 'events were gone from skein.events before they were folded',
    started_at               DateTime64(3, 'UTC') COMMENT 'start of the run, by its events, else by Kafka' CODEC(Delta, ZSTD(1)),
    ended_at                 Nullable(DateTime64(3, 'UTC')) COMMENT 'end of the run; NULL while it is running' CODEC(ZSTD(1)),
    updated_at               DateTime64(3, 'UTC') COMMENT 'ended_at, else started_at' CODEC(Delta, ZSTD(1)),
    time_to_first_token_ms   Nullable(Int64) COMMENT 'milliseconds from the start to the first text; NULL where there is none' CODEC(ZSTD(1)),
    duration_ms              Nullable(Int64) COMMENT 'milliseconds from the start to the end' CODEC(ZSTD(1)),
    raw_partition            Int32 COMMENT 'partition of skein.events and of skein.runs',
    raw_first                Int64 COMMENT 'offset of the first event' CODEC(Delta, ZSTD(1)),
    raw_next                 Int64 COMMENT 'offset behind the last event' CODEC(ZSTD(1)),
    raw_events               Int64 COMMENT 'events that were folded' CODEC(ZSTD(1)),
    message_count            UInt32 COMMENT 'messages in the history at the end of the run' CODEC(ZSTD(1)),
    own_messages             UInt32 COMMENT 'messages that the run added or changed' CODEC(ZSTD(1)),
    input_messages           UInt32 COMMENT 'messages that the input brought' CODEC(ZSTD(1)),
    open_interrupts          UInt32 COMMENT 'interrupts that the run ended with',
    pending_tool_calls       UInt32 COMMENT 'tool calls that the run left to the client',
    resumes                  UInt32 COMMENT 'answers to interrupts in the input',
    events                   Map(LowCardinality(String), Int64) COMMENT 'events by type',
    event_bytes              Map(LowCardinality(String), Int64) COMMENT 'bytes of events by type',
    event_bytes_sum          Int64 COMMENT 'bytes of events' CODEC(ZSTD(1)),
    tool_calls               Map(LowCardinality(String), Int64) COMMENT 'tool calls by name',
    tool_calls_sum           Int64 COMMENT 'tool calls',
    anomalies                Map(LowCardinality(String), Int64) COMMENT 'violations of the protocol by rule',
    anomalies_sum            Int64 COMMENT 'violations of the protocol',
    models                   Array(LowCardinality(String)) COMMENT 'model of each entry of the token usage, one for each provider and model; empty text where none is named',
    model_providers          Array(LowCardinality(String)) COMMENT 'provider of each entry; empty text where none is named',
    model_input_tokens       Array(Nullable(Int64)) COMMENT 'input tokens of each entry; NULL where it reports none' CODEC(ZSTD(1)),
    model_output_tokens      Array(Nullable(Int64)) COMMENT 'output tokens of each entry' CODEC(ZSTD(1)),
    input_tokens             Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', model_input_tokens) COMMENT 'input tokens that were reported; NULL where none were' CODEC(ZSTD(1)),
    output_tokens            Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', model_output_tokens) COMMENT 'output tokens that were reported' CODEC(ZSTD(1)),
    total_tokens             Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', arrayMap((i, o) -> i + o, model_input_tokens, model_output_tokens)) COMMENT 'input plus output tokens of the entries that report both' CODEC(ZSTD(1)),
    model_reasoning_tokens   Array(Nullable(Int64)) COMMENT 'of the output tokens of each entry those of reasoning' CODEC(ZSTD(1)),
    model_cached_tokens      Array(Nullable(Int64)) COMMENT 'of the input tokens of each entry those read from a cache' CODEC(ZSTD(1)),
    model_cache_write_tokens Array(Nullable(Int64)) COMMENT 'of the input tokens of each entry those written to a cache' CODEC(ZSTD(1)),
    fold_version             UInt32 COMMENT 'rules of the fold that made the record',
    record                   String COMMENT 'the members of the run record that head lacks, as JSON, without messages, state and open fold' CODEC(ZSTD(3)) SETTINGS (min_compress_block_size = 524288),
    agent                    LowCardinality(String) COMMENT 'who produced the run',
    labels                   Map(LowCardinality(String), String) COMMENT 'labels of the run, by key',
    error_code               LowCardinality(String) COMMENT 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    error_message            String COMMENT 'message of the RUN_ERROR that ended the run, at most 1,024 bytes of it' CODEC(ZSTD(1)),
    cancelled_by             LowCardinality(String) COMMENT 'who ended a cancelled run: agent, skein if somebody stopped it through the proxy, or caller if the proxy''s caller left',
    rewrote                  Array(LowCardinality(String)) COMMENT 'how the input departs from the history of the parent: replaced, summarised, trimmed, inserted, rewound, reordered, edited',
    asked                    String COMMENT 'hash of the new messages of the input, by role and content, without ids; empty where it has none. A sibling with an equal hash is a regeneration, one with another an edit' CODEC(ZSTD(1)),
    head                     String COMMENT 'what lineage tells of the run, as JSON: members of the run record, and question, reply, resumed among facts' CODEC(ZSTD(3)),
    recorded_at              DateTime('UTC') COMMENT 'time of the record in skein.runs; 1970 where it is unknown' CODEC(ZSTD(1)),
    INDEX tombstone deleted TYPE minmax GRANULARITY 8
)
ENGINE = /* replicated */ReplacingMergeTree(version, deleted)
ORDER BY (tenant, thread_id, run_id)
SETTINGS index_granularity = 128, non_replicated_deduplication_window = 1000, min_bytes_for_wide_part = 67108864;

-- The messages that a run has added or changed, and those of its input. A row counts only where its version is that of the run's row, and only if
-- all rows of that version are there: a newer version may have replaced some of an older one's. Searches for words skip the granules that lack a word's
-- sequences of four characters; the expression is that of the search. Merges make the index, inserts do not.
CREATE TABLE IF NOT EXISTS messages /* on cluster */
(
    tenant     String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id  String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id     String COMMENT 'the run' CODEC(ZSTD(1)),
    input      UInt8 COMMENT '1: a message of the input, 0: one that the run added or changed, 2: an error of the run or of a tool, for searches',
    idx        UInt32 COMMENT 'place in its list, from 0' CODEC(ZSTD(1)),
    version    UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same' CODEC(ZSTD(1)),
    message_id String COMMENT 'id of the message' CODEC(ZSTD(1)),
    role       LowCardinality(String) COMMENT 'role of the message',
    raw        String COMMENT 'the message as JSON, byte for byte' CODEC(ZSTD(3)),
    folded     String COMMENT 'its text in folded case, where that is not its lower case; else empty' CODEC(ZSTD(3)),
    INDEX words if(notEmpty(folded), folded, lowerUTF8(if(JSONType(raw, 'content') = 'String', JSONExtractString(raw, 'content'), arrayStringConcat(arrayMap(p -> if(JSONExtractString(p, 'type') = 'text', JSONExtractString(p, 'text'), ''), JSONExtractArrayRaw(raw, 'content')), '\n')))) TYPE ngrambf_v1(4, 8192, 2, 0) GRANULARITY 1
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, input, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000, min_bytes_for_wide_part = 67108864;

-- One row for every run whose contents are there. No state's JSON is empty: '' says that the run left the state as its base has it.
CREATE TABLE IF NOT EXISTS states /* on cluster */
(
    tenant    String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id    String COMMENT 'the run' CODEC(ZSTD(1)),
    version   UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same' CODEC(ZSTD(1)),
    state     String COMMENT 'the state at the end of the run as JSON; empty where it is that of the base' CODEC(ZSTD(3))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id)
SETTINGS index_granularity = 128, non_replicated_deduplication_window = 1000, min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS tool_calls /* on cluster */
(
    tenant         String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id      String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id         String COMMENT 'the run' CODEC(ZSTD(1)),
    idx            UInt32 COMMENT 'place among the rows of the run, from 0: calls in their order, then results' CODEC(ZSTD(1)),
    version        UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same' CODEC(ZSTD(1)),
    tool_call_id   String COMMENT 'id of the call, as the agent gave it' CODEC(ZSTD(1)),
    name           LowCardinality(String) COMMENT 'name of the tool; empty of a result that the input brought',
    message_id     String COMMENT 'the message that holds the call, or is the result' CODEC(ZSTD(1)),
    made           Bool COMMENT 'the run made the call; else the row is a result for a call of an earlier run',
    agent          LowCardinality(String) COMMENT 'the agent of the run',
    model          LowCardinality(String) COMMENT 'the model of the run, where it names exactly one',
    started_at     DateTime64(3, 'UTC') COMMENT 'start of the run' CODEC(Delta, ZSTD(1)),
    argument_bytes UInt32 COMMENT 'bytes of the arguments' CODEC(ZSTD(1)),
    answered       Bool COMMENT 'the record has the result',
    result_bytes   UInt32 COMMENT 'bytes of the text of the result' CODEC(ZSTD(1)),
    failed         Bool COMMENT 'the result has an error',
    error          String COMMENT 'at most 1,024 bytes of that error' CODEC(ZSTD(1)),
    pending        Bool COMMENT 'the run ended and left the call to the client',
    called_at      Nullable(DateTime64(3, 'UTC')) COMMENT 'when the call began; NULL where the record does not say it' CODEC(ZSTD(1)),
    duration_ms    Nullable(Int64) COMMENT 'milliseconds from called_at to the result; NULL where the run has no result, or the record no times' CODEC(ZSTD(1))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000
COMMENT 'Tool calls: one row for each call, and one for each result that came with the input of a later run.';

CREATE TABLE IF NOT EXISTS interrupts /* on cluster */
(
    tenant       String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id    String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id       String COMMENT 'the run that the interrupt ended' CODEC(ZSTD(1)),
    idx          UInt32 COMMENT 'place among those of the run, from 0',
    version      UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same' CODEC(ZSTD(1)),
    interrupt_id String COMMENT 'id of the interrupt' CODEC(ZSTD(1)),
    reason       String COMMENT 'its reason',
    message      String COMMENT 'at most 1,024 bytes of what it asks' CODEC(ZSTD(1)),
    tool_call_id String COMMENT 'the tool call that it is about' CODEC(ZSTD(1)),
    agent        LowCardinality(String) COMMENT 'the agent of the run',
    opened_at    DateTime64(3, 'UTC') COMMENT 'end of the run' CODEC(Delta, ZSTD(1)),
    expires_at   Nullable(DateTime64(3, 'UTC')) COMMENT 'when an answer comes too late' CODEC(ZSTD(1))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000
COMMENT 'Interrupts: one row for each that a run ended with.';

CREATE TABLE IF NOT EXISTS answers /* on cluster */
(
    tenant       String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id    String COMMENT 'the thread' CODEC(ZSTD(1)),
    run_id       String COMMENT 'the run whose input answers' CODEC(ZSTD(1)),
    idx          UInt32 COMMENT 'place among the resume entries of the input, from 0',
    version      UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same' CODEC(ZSTD(1)),
    interrupt_id String COMMENT 'the interrupt that is answered' CODEC(ZSTD(1)),
    status       LowCardinality(String) COMMENT 'resolved or cancelled',
    payload      String COMMENT 'the answer, as JSON; empty where it has none' CODEC(ZSTD(3)),
    answered_at  DateTime64(3, 'UTC') COMMENT 'start of the run that answers' CODEC(Delta, ZSTD(1))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000
COMMENT 'Answers to interrupts: one row for each resume entry of an input.';

-- How far a tenant's events are indexed: the greatest raw_next of a partition, written after the rows that it speaks of. What progress records of
-- skein.runs say holds for every tenant and has tenant ''. A maximum comes out the same however often its rows are written, and readers that wait for a
-- position ask for it many times a second: in runs that would read all rows of the tenant.
CREATE TABLE IF NOT EXISTS positions /* on cluster */
(
    tenant        String COMMENT 'the tenant; empty: every tenant',
    raw_partition Int32 COMMENT 'partition of skein.events',
    raw_next      UInt64 COMMENT 'events below this offset are indexed'
)
ENGINE = /* replicated */ReplacingMergeTree(raw_next)
ORDER BY (tenant, raw_partition)
SETTINGS non_replicated_deduplication_window = 1000;

-- Which threads were erased, as erasure records of skein.runs say.
CREATE TABLE IF NOT EXISTS erasures /* on cluster */
(
    tenant    String COMMENT 'the tenant',
    thread_id String COMMENT 'the erased thread',
    below     Int64 COMMENT 'events of the thread below this offset of skein.events are erased',
    at        DateTime64(3, 'UTC') COMMENT 'time of the erasure record',
    version   UInt64 COMMENT 'offset of the erasure record in skein.runs'
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- Which skein.runs the rows are of: the id that the brokers have given to the topic. One row, once an indexer has begun. Versions are offsets, and
-- those of two topics cannot be compared.
CREATE TABLE IF NOT EXISTS sources /* on cluster */
(
    topic_id String,
    since    DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = /* replicated */ReplacingMergeTree
ORDER BY topic_id;

-- Runs by day and tenant, for searches and statistics over a range of time: runs is sorted by thread, so that every such question reads it whole. The day
-- comes first, so that a day of all tenants is one range, too.
--
-- The table holds what those questions ask for and nothing else. A materialized view copies rows of runs into it. A run whose start has moved to
-- another day has two rows here, and tombstones know no start: readers take of the runs that this can be true of the row that runs has
-- (docs/adr/017-runs-by-time.md).
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
    cancelled_by           LowCardinality(String) COMMENT 'who ended a cancelled run: agent, skein or caller',
    started_at             DateTime64(3, 'UTC') COMMENT 'start of the run, by its events, else by Kafka' CODEC(Delta, ZSTD(1)),
    time_to_first_token_ms Nullable(Int64) COMMENT 'milliseconds from the start to the first text; NULL where there is none' CODEC(ZSTD(1)),
    duration_ms            Nullable(Int64) COMMENT 'milliseconds from the start to the end' CODEC(ZSTD(1)),
    open_interrupts        UInt32 COMMENT 'interrupts that the run ended with' CODEC(ZSTD(1)),
    event_bytes_sum        Int64 COMMENT 'bytes of events' CODEC(ZSTD(1)),
    tool_calls             Map(LowCardinality(String), Int64) COMMENT 'tool calls by name' CODEC(ZSTD(1)),
    tool_calls_sum         Int64 COMMENT 'tool calls' CODEC(ZSTD(1)),
    anomalies              Map(LowCardinality(String), Int64) COMMENT 'violations of the protocol by rule' CODEC(ZSTD(1)),
    anomalies_sum          Int64 COMMENT 'violations of the protocol' CODEC(ZSTD(1)),
    models                 Array(LowCardinality(String)) COMMENT 'model of each entry of the token usage, one for each provider and model' CODEC(ZSTD(1)),
    model_input_tokens     Array(Nullable(Int64)) COMMENT 'input tokens of each entry; NULL where it reports none' CODEC(ZSTD(1)),
    model_output_tokens    Array(Nullable(Int64)) COMMENT 'output tokens of each entry' CODEC(ZSTD(1)),
    input_tokens           Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', model_input_tokens) COMMENT 'input tokens that were reported; NULL where none were' CODEC(ZSTD(1)),
    output_tokens          Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', model_output_tokens) COMMENT 'output tokens that were reported' CODEC(ZSTD(1)),
    total_tokens           Nullable(Int64) MATERIALIZED arrayReduce('sumOrNull', arrayMap((i, o) -> i + o, model_input_tokens, model_output_tokens)) COMMENT 'input plus output tokens of the entries that report both' CODEC(ZSTD(1)),
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
    anomalies, anomalies_sum, models, model_input_tokens, model_output_tokens, head
FROM runs
WHERE deleted = 0;

-- Views for people and dashboards. Each contains FINAL and the comparison of versions that tells which rows count, so a question needs neither. A
-- condition on tenant and thread_id reaches the tables' primary key.

CREATE TABLE IF NOT EXISTS prices /* on cluster */
(
    model                         String COMMENT 'the model, as token usage names it',
    provider                      String COMMENT 'its provider; empty: of each provider that has no price of its own',
    input_per_million             Float64 COMMENT 'price of a million input tokens, in the currency that you choose',
    output_per_million            Float64 COMMENT 'price of a million output tokens',
    cached_input_per_million      Nullable(Float64) COMMENT 'of those input tokens that were read from a cache; NULL: as the others',
    cache_write_input_per_million Nullable(Float64) COMMENT 'of those input tokens that were written to a cache; NULL: as the others',
    reasoning_per_million         Nullable(Float64) COMMENT 'of those output tokens that are reasoning; NULL: as the others',
    since                         DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'the row written last counts'
)
ENGINE = /* replicated */ReplacingMergeTree(since)
ORDER BY (model, provider)
COMMENT 'Prices by model and provider, for the column cost of v_runs. Skein writes none: insert your own.';

CREATE VIEW IF NOT EXISTS v_runs /* on cluster */
(
    tenant                 String COMMENT 'the tenant',
    thread_id              String COMMENT 'the thread',
    run_id                 String COMMENT 'the run',
    client_run_id          String COMMENT 'the id as the agent gave it, where the run has another one',
    parent_run_id          String COMMENT 'the run of the same thread that this one goes on from; empty of a root',
    parent_by              LowCardinality(String) COMMENT 'how the parent was found: explicit, content, latest or none',
    spawned_by             String COMMENT 'a run that was named as the parent and spawned this one, or was no run of this thread',
    spawned                Bool COMMENT 'a run of the thread spawned the first run of the tree',
    branch_id              String COMMENT 'id of the first run of the branch',
    root_run_id            String COMMENT 'id of the first run of the tree',
    depth                  UInt32 COMMENT 'runs between this one and its root; 0 of a root',
    status                 LowCardinality(String) COMMENT 'running, finished, error, interrupted, cancelled or abandoned',
    agent                  LowCardinality(String) COMMENT 'who produced the run',
    labels                 Map(LowCardinality(String), String) COMMENT 'labels of the run, by key',
    error_code             LowCardinality(String) COMMENT 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    error_message          String COMMENT 'message of the RUN_ERROR that ended the run, at most 1,024 bytes of it',
    cancelled_by           LowCardinality(String) COMMENT 'who ended a cancelled run: agent, skein if somebody stopped it through the proxy, or caller if the proxy''s caller left',
    rewrote                Array(LowCardinality(String)) COMMENT 'how the input departs from the history of the parent: replaced, summarised, trimmed, inserted, rewound, reordered, edited',
    asked                  String COMMENT 'hash of the new messages of the input, by role and content, without ids; empty where it has none. A sibling with an equal hash is a regeneration, one with another an edit',
    question               String COMMENT 'first 200 characters of the last new message of a user',
    reply                  String COMMENT 'first 200 characters of the last text that the agent wrote',
    resumed                String COMMENT 'first 200 characters of the payload of the first resume entry, else its status',
    started_at             DateTime64(3, 'UTC') COMMENT 'start of the run, by its events, else by Kafka',
    ended_at               Nullable(DateTime64(3, 'UTC')) COMMENT 'end of the run; NULL while it is running',
    time_to_first_token_ms Nullable(Int64) COMMENT 'milliseconds from the start to the first text; NULL where there is none',
    duration_ms            Nullable(Int64) COMMENT 'milliseconds from the start to the end',
    message_count          UInt32 COMMENT 'messages in the history at the end of the run',
    own_messages           UInt32 COMMENT 'messages that the run added or changed',
    input_messages         UInt32 COMMENT 'messages that the input brought',
    open_interrupts        UInt32 COMMENT 'interrupts that the run ended with',
    pending_tool_calls     UInt32 COMMENT 'tool calls that the run left to the client',
    resumes                UInt32 COMMENT 'answers to interrupts in the input',
    raw_events             Int64 COMMENT 'events that were folded',
    event_bytes            Int64 COMMENT 'bytes of events',
    events                 Map(LowCardinality(String), Int64) COMMENT 'events by type',
    tool_calls             Map(LowCardinality(String), Int64) COMMENT 'tool calls by name',
    tool_calls_sum         Int64 COMMENT 'tool calls',
    anomalies              Map(LowCardinality(String), Int64) COMMENT 'violations of the protocol by rule',
    anomalies_sum          Int64 COMMENT 'violations of the protocol',
    models                 Array(LowCardinality(String)) COMMENT 'model of each entry of the token usage, one for each provider and model; empty text where none is named',
    model_providers        Array(LowCardinality(String)) COMMENT 'provider of each entry; empty text where none is named',
    model_input_tokens     Array(Nullable(Int64)) COMMENT 'input tokens of each entry; NULL where it reports none',
    model_output_tokens    Array(Nullable(Int64)) COMMENT 'output tokens of each entry',
    model_costs            Array(Nullable(Float64)) COMMENT 'cost of each entry by the table prices; NULL where there is no price, or the entry lacks input or output tokens',
    input_tokens           Nullable(Int64) COMMENT 'input tokens that were reported; NULL where none were',
    output_tokens          Nullable(Int64) COMMENT 'output tokens that were reported',
    total_tokens           Nullable(Int64) COMMENT 'input plus output tokens of the entries that report both',
    reasoning_tokens       Nullable(Int64) COMMENT 'of the output tokens those of reasoning',
    cached_input_tokens    Nullable(Int64) COMMENT 'of the input tokens those read from a cache',
    cache_write_input_tokens Nullable(Int64) COMMENT 'of the input tokens those written to a cache',
    cost                   Nullable(Float64) COMMENT 'sum of model_costs; NULL where there are none or one of them is NULL',
    synthetic              Bool COMMENT 'Skein wrote the end of the run',
    truncated              Bool COMMENT 'the record was cut at the limit of its size; skein.events has all',
    raw_lost               Bool COMMENT 'events were gone from skein.events before they were folded',
    raw_partition          Int32 COMMENT 'partition of skein.events and of skein.runs',
    raw_first              Int64 COMMENT 'offset of the first event',
    raw_next               Int64 COMMENT 'offset behind the last event',
    version                UInt64 COMMENT 'offset of the record in skein.runs'
)
AS WITH
    (SELECT mapFromArrays(groupArray(concat(model, '\0', provider)), groupArray((input_per_million, output_per_million,
        ifNull(cached_input_per_million, input_per_million), ifNull(cache_write_input_per_million, input_per_million),
        ifNull(reasoning_per_million, output_per_million)))) FROM prices FINAL) AS price,
    arrayMap((m, p) -> if(mapContains(price, concat(m, '\0', p)), concat(m, '\0', p), concat(m, '\0')), models, model_providers) AS priced
SELECT
    tenant, thread_id, run_id, client_run_id, parent_run_id, parent_by, spawned_by, spawned, branch_id, root_run_id, depth,
    status, agent, labels, error_code, error_message, cancelled_by, rewrote, asked,
    JSONExtractString(head, 'facts', 'question') AS question, JSONExtractString(head, 'facts', 'reply') AS reply,
    JSONExtractString(head, 'facts', 'resumed') AS resumed,
    started_at, ended_at, time_to_first_token_ms, duration_ms,
    message_count, own_messages, input_messages, open_interrupts, pending_tool_calls, resumes,
    raw_events, event_bytes_sum AS event_bytes, events, tool_calls, tool_calls_sum, anomalies, anomalies_sum,
    models, model_providers, model_input_tokens, model_output_tokens,
    arrayMap((p, i, o, c, w, r) -> if(mapContains(price, p), (if(i < c + w, 0, i - c - w) * price[p].1 + c * price[p].3 + w * price[p].4
        + if(o < r, 0, o - r) * price[p].2 + r * price[p].5) / 1000000, NULL), priced, model_input_tokens, model_output_tokens,
        arrayMap(n -> ifNull(n, 0), model_cached_tokens), arrayMap(n -> ifNull(n, 0), model_cache_write_tokens),
        arrayMap(n -> ifNull(n, 0), model_reasoning_tokens)) AS model_costs,
    input_tokens, output_tokens, total_tokens,
    arrayReduce('sumOrNull', model_reasoning_tokens) AS reasoning_tokens, arrayReduce('sumOrNull', model_cached_tokens) AS cached_input_tokens,
    arrayReduce('sumOrNull', model_cache_write_tokens) AS cache_write_input_tokens,
    if(has(model_costs, NULL), NULL, arrayReduce('sumOrNull', model_costs)) AS cost,
    synthetic, truncated, raw_lost, raw_partition, raw_first, raw_next, version
FROM runs FINAL;

CREATE VIEW IF NOT EXISTS v_runs_by_time /* on cluster */
(
    tenant                 String COMMENT 'the tenant',
    thread_id              String COMMENT 'the thread',
    run_id                 String COMMENT 'the run',
    depth                  UInt32 COMMENT 'runs between this one and its root; 0 of a root',
    status                 LowCardinality(String) COMMENT 'running, finished, error, interrupted, cancelled or abandoned',
    agent                  LowCardinality(String) COMMENT 'who produced the run',
    labels                 Map(LowCardinality(String), String) COMMENT 'labels of the run, by key',
    error_code             LowCardinality(String) COMMENT 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    cancelled_by           LowCardinality(String) COMMENT 'who ended a cancelled run: agent, skein or caller',
    started_at             DateTime64(3, 'UTC') COMMENT 'start of the run, by its events, else by Kafka',
    time_to_first_token_ms Nullable(Int64) COMMENT 'milliseconds from the start to the first text; NULL where there is none',
    duration_ms            Nullable(Int64) COMMENT 'milliseconds from the start to the end',
    open_interrupts        UInt32 COMMENT 'interrupts that the run ended with',
    event_bytes            Int64 COMMENT 'bytes of events',
    tool_calls             Map(LowCardinality(String), Int64) COMMENT 'tool calls by name',
    tool_calls_sum         Int64 COMMENT 'tool calls',
    anomalies              Map(LowCardinality(String), Int64) COMMENT 'violations of the protocol by rule',
    anomalies_sum          Int64 COMMENT 'violations of the protocol',
    models                 Array(LowCardinality(String)) COMMENT 'model of each entry of the token usage, one for each provider and model',
    model_input_tokens     Array(Nullable(Int64)) COMMENT 'input tokens of each entry; NULL where it reports none',
    model_output_tokens    Array(Nullable(Int64)) COMMENT 'output tokens of each entry',
    input_tokens           Nullable(Int64) COMMENT 'input tokens that were reported; NULL where none were',
    output_tokens          Nullable(Int64) COMMENT 'output tokens that were reported',
    total_tokens           Nullable(Int64) COMMENT 'input plus output tokens of the entries that report both',
    raw_partition          Int32 COMMENT 'partition of skein.events',
    raw_first              Int64 COMMENT 'offset of the first event',
    version                UInt64 COMMENT 'offset of the record in skein.runs'
)
AS SELECT
    tenant, thread_id, run_id, depth, status, agent, labels, error_code, cancelled_by, started_at, time_to_first_token_ms, duration_ms,
    open_interrupts, event_bytes_sum AS event_bytes, tool_calls, tool_calls_sum, anomalies, anomalies_sum,
    models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens,
    raw_partition, raw_first, version
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

-- Where a run stands among the others of its thread: a view, since other runs tell. v_runs has no such columns, as each question to it would read
-- the thread's other runs.
CREATE VIEW IF NOT EXISTS v_places /* on cluster */
(
    tenant         String COMMENT 'the tenant',
    thread_id      String COMMENT 'the thread',
    run_id         String COMMENT 'the run',
    parent_run_id  String COMMENT 'the run that this one goes on from; empty of a root',
    children       UInt64 COMMENT 'runs that go on from this one',
    is_tip         Bool COMMENT 'no run goes on from this one',
    place          UInt64 COMMENT 'place among the runs of one parent, by their first event, from 1; roots of a thread are siblings, but for runs that were spawned',
    siblings       UInt64 COMMENT 'runs of one parent, with this one',
    superseded     Bool COMMENT 'a later run of the same parent took its place: it was asked again, or something else was',
    newest_sibling String COMMENT 'the latest run of the same parent; this one unless superseded'
)
AS SELECT
    p.tenant AS tenant, p.thread_id AS thread_id, p.run_id AS run_id, max(p.parent) AS parent_run_id,
    countIf(p.child) AS children, toBool(countIf(p.child) = 0) AS is_tip,
    max(p.place_of) AS place, max(p.among) AS siblings, toBool(max(p.place_of) < max(p.among)) AS superseded, max(p.newest) AS newest_sibling
FROM
(
    SELECT
        r.tenant AS tenant, r.thread_id AS thread_id, r.run_id AS run_id, r.parent_run_id AS parent, toBool(0) AS child,
        row_number() OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id, r.spawned ORDER BY r.raw_first, r.run_id) AS place_of,
        count() OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id, r.spawned) AS among,
        tupleElement(max((r.raw_first, r.run_id)) OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id, r.spawned), 2) AS newest
    FROM (SELECT tenant, thread_id, run_id, parent_run_id, raw_first, if(spawned_by = '', '', run_id) AS spawned FROM runs FINAL) AS r
    UNION ALL
    SELECT
        c.tenant AS tenant, c.thread_id AS thread_id, c.parent_run_id AS run_id, '' AS parent, toBool(1) AS child,
        toUInt64(0) AS place_of, toUInt64(0) AS among, '' AS newest
    FROM (SELECT tenant, thread_id, parent_run_id FROM runs FINAL WHERE parent_run_id != '') AS c
) AS p
GROUP BY p.tenant, p.thread_id, p.run_id
HAVING countIf(NOT p.child) > 0;

CREATE VIEW IF NOT EXISTS v_messages /* on cluster */
(
    tenant     String COMMENT 'the tenant',
    thread_id  String COMMENT 'the thread',
    run_id     String COMMENT 'the run',
    input      UInt8 COMMENT '1: a message of the input, 0: one that the run added or changed',
    idx        UInt32 COMMENT 'place in its list, from 0',
    message_id String COMMENT 'id of the message',
    role       LowCardinality(String) COMMENT 'role of the message',
    text       String COMMENT 'the content where it is text, else the text parts of it, by lines',
    bytes      UInt64 COMMENT 'bytes of the message as JSON',
    agent      LowCardinality(String) COMMENT 'the agent of the run',
    model      String COMMENT 'the model of the run, where it names exactly one',
    run_tokens Nullable(Int64) COMMENT 'total_tokens of the whole run: agents report none by message',
    status     LowCardinality(String) COMMENT 'status of the run',
    started_at DateTime64(3, 'UTC') COMMENT 'start of the run',
    raw        String COMMENT 'the message as JSON, byte for byte'
)
AS SELECT
    m.tenant AS tenant, m.thread_id AS thread_id, m.run_id AS run_id, m.input AS input, m.idx AS idx,
    m.message_id AS message_id, m.role AS role,
    if(JSONType(m.raw, 'content') = 'String', JSONExtractString(m.raw, 'content'),
       arrayStringConcat(arrayFilter(t -> t != '', arrayMap(p -> JSONExtractString(p, 'text'), JSONExtractArrayRaw(m.raw, 'content'))), '\n')) AS text,
    length(m.raw) AS bytes,
    r.agent AS agent, if(arrayUniq(r.models) = 1, r.models[1], '') AS model,
    r.total_tokens AS run_tokens, r.status AS status, r.started_at AS started_at, m.raw AS raw
FROM (SELECT * FROM messages FINAL WHERE input < 2) AS m
INNER JOIN (
    SELECT tenant, thread_id, run_id, version, agent, models, total_tokens, status, started_at FROM runs FINAL WHERE status != 'running') AS r
    ON r.tenant = m.tenant AND r.thread_id = m.thread_id AND r.run_id = m.run_id AND r.version = m.version;

CREATE VIEW IF NOT EXISTS v_tool_calls /* on cluster */
(
    tenant         String COMMENT 'the tenant',
    thread_id      String COMMENT 'the thread',
    tool_call_id   String COMMENT 'id of the call; calls of one id in a thread are one row',
    run_id         String COMMENT 'the run that made the call first',
    idx            UInt32 COMMENT 'place among the calls of the run',
    name           String COMMENT 'name of the tool',
    agent          String COMMENT 'the agent of the run',
    model          String COMMENT 'the model of the run, where it names exactly one',
    status         String COMMENT 'status of the run',
    run_started_at DateTime64(3, 'UTC') COMMENT 'start of the run',
    started_at     Nullable(DateTime64(3, 'UTC')) COMMENT 'start of the call, by its event, else by Kafka; NULL where the run record does not say it: it was cut, has the call from a snapshot of its messages, or the call is beyond the first 1,000 or 64 KiB of ids',
    duration_ms    Nullable(Int64) COMMENT 'milliseconds from started_at to the result in the same run; NULL where that has none or started_at is NULL',
    argument_bytes UInt32 COMMENT 'bytes of the arguments',
    has_result     Bool COMMENT 'the run, a later run or its input has the result',
    result_bytes   UInt32 COMMENT 'bytes of the text of the result',
    failed         Bool COMMENT 'the result has an error',
    error          String COMMENT 'at most 1,024 bytes of that error',
    later_results  UInt64 COMMENT 'results that came with later runs or their inputs'
)
AS SELECT
    c.tenant AS tenant, c.thread_id AS thread_id, c.tool_call_id AS tool_call_id,
    argMinIf(c.run_id, (c.started_at, c.run_id, c.idx), c.made) AS run_id,
    argMinIf(c.idx, (c.started_at, c.run_id, c.idx), c.made) AS idx,
    argMinIf(c.name, (c.started_at, c.run_id, c.idx), c.made) AS name,
    argMinIf(c.agent, (c.started_at, c.run_id, c.idx), c.made) AS agent,
    argMinIf(c.model, (c.started_at, c.run_id, c.idx), c.made) AS model,
    argMinIf(c.status, (c.started_at, c.run_id, c.idx), c.made) AS status,
    minIf(c.started_at, c.made) AS run_started_at,
    tupleElement(argMinIf((c.called_at, c.duration_ms), (c.started_at, c.run_id, c.idx), c.made), 1) AS started_at,
    tupleElement(argMinIf((c.called_at, c.duration_ms), (c.started_at, c.run_id, c.idx), c.made), 2) AS duration_ms,
    argMinIf(c.argument_bytes, (c.started_at, c.run_id, c.idx), c.made) AS argument_bytes,
    toBool(max(c.answered)) AS has_result,
    max(c.result_bytes) AS result_bytes,
    toBool(max(c.failed)) AS failed,
    max(c.error) AS error,
    countIf(NOT c.made) AS later_results
FROM
(
    SELECT t.tenant AS tenant, t.thread_id AS thread_id, t.run_id AS run_id, t.idx AS idx, t.tool_call_id AS tool_call_id, t.name AS name,
           t.agent AS agent, t.model AS model, t.started_at AS started_at, t.called_at AS called_at, t.duration_ms AS duration_ms,
           t.argument_bytes AS argument_bytes, t.made AS made,
           t.answered AS answered, t.result_bytes AS result_bytes, t.failed AS failed, t.error AS error, r.status AS status
    FROM (SELECT * FROM tool_calls FINAL) AS t
    INNER JOIN (SELECT tenant, thread_id, run_id, version, status FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = t.tenant AND r.thread_id = t.thread_id AND r.run_id = t.run_id AND r.version = t.version
) AS c
GROUP BY c.tenant, c.thread_id, c.tool_call_id
HAVING countIf(c.made) > 0;

CREATE VIEW IF NOT EXISTS v_interrupts /* on cluster */
(
    tenant             String COMMENT 'the tenant',
    thread_id          String COMMENT 'the thread',
    interrupt_id       String COMMENT 'id of the interrupt',
    run_id             String COMMENT 'the run that the interrupt ended',
    agent              String COMMENT 'the agent of that run',
    reason             String COMMENT 'its reason',
    message            String COMMENT 'at most 1,024 bytes of what it asks',
    tool_call_id       String COMMENT 'the tool call that it is about',
    opened_at          DateTime64(3, 'UTC') COMMENT 'end of the run',
    expires_at         Nullable(DateTime64(3, 'UTC')) COMMENT 'when an answer comes too late',
    answers            UInt64 COMMENT 'answers so far; two are two branches',
    answered_at        Nullable(DateTime64(3, 'UTC')) COMMENT 'start of the first run that answers; NULL while none does',
    answered_by_run_id String COMMENT 'the first run that answers',
    answer             String COMMENT 'its status: resolved or cancelled',
    wait_ms            Nullable(Int64) COMMENT 'milliseconds from opened_at to answered_at'
)
AS SELECT
    e.tenant AS tenant, e.thread_id AS thread_id, e.interrupt_id AS interrupt_id,
    argMinIf(e.run_id, (e.at, e.run_id), e.opened) AS run_id,
    argMinIf(e.agent, (e.at, e.run_id), e.opened) AS agent,
    argMinIf(e.reason, (e.at, e.run_id), e.opened) AS reason,
    argMinIf(e.message, (e.at, e.run_id), e.opened) AS message,
    argMinIf(e.tool_call_id, (e.at, e.run_id), e.opened) AS tool_call_id,
    minIf(e.at, e.opened) AS opened_at,
    argMinIf(e.expires_at, (e.at, e.run_id), e.opened) AS expires_at,
    countIf(NOT e.opened) AS answers,
    if(countIf(NOT e.opened) = 0, NULL, minIf(e.at, NOT e.opened)) AS answered_at,
    argMinIf(e.run_id, (e.at, e.run_id), NOT e.opened) AS answered_by_run_id,
    argMinIf(e.answer, (e.at, e.run_id), NOT e.opened) AS answer,
    if(countIf(NOT e.opened) = 0, NULL, dateDiff('millisecond', minIf(e.at, e.opened), minIf(e.at, NOT e.opened))) AS wait_ms
FROM
(
    SELECT i.tenant AS tenant, i.thread_id AS thread_id, i.run_id AS run_id, i.interrupt_id AS interrupt_id, toBool(1) AS opened, i.opened_at AS at,
           i.agent AS agent, i.reason AS reason, i.message AS message, i.tool_call_id AS tool_call_id, i.expires_at AS expires_at, '' AS answer
    FROM (SELECT * FROM interrupts FINAL) AS i
    INNER JOIN (SELECT tenant, thread_id, run_id, version FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = i.tenant AND r.thread_id = i.thread_id AND r.run_id = i.run_id AND r.version = i.version
    UNION ALL
    SELECT a.tenant AS tenant, a.thread_id AS thread_id, a.run_id AS run_id, a.interrupt_id AS interrupt_id, toBool(0) AS opened, a.answered_at AS at,
           '' AS agent, '' AS reason, '' AS message, '' AS tool_call_id, NULL AS expires_at, a.status AS answer
    FROM (SELECT * FROM answers FINAL) AS a
    INNER JOIN (SELECT tenant, thread_id, run_id, version FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = a.tenant AND r.thread_id = a.thread_id AND r.run_id = a.run_id AND r.version = a.version
) AS e
GROUP BY e.tenant, e.thread_id, e.interrupt_id
HAVING countIf(e.opened) > 0;

CREATE VIEW IF NOT EXISTS v_branches /* on cluster */
(
    tenant        String COMMENT 'the tenant',
    thread_id     String COMMENT 'the thread',
    branch_id     String COMMENT 'id of the first run of the branch',
    parent_run_id String COMMENT 'the run that the branch parts from; empty of a root',
    agent         String COMMENT 'the agent of the first run',
    runs          UInt64 COMMENT 'runs of the branch',
    tip_run_id    String COMMENT 'the last run of the branch',
    tip_status    String COMMENT 'status of that run',
    depth         UInt32 COMMENT 'greatest depth of its runs',
    started_at    DateTime64(3, 'UTC') COMMENT 'start of the first run',
    updated_at    DateTime64(3, 'UTC') COMMENT 'end of the last one that ended, or start of one that is running',
    input_tokens  Nullable(Int64) COMMENT 'input tokens that its runs reported; NULL where none were',
    output_tokens Nullable(Int64) COMMENT 'output tokens that its runs reported',
    total_tokens  Nullable(Int64) COMMENT 'total_tokens of its runs',
    is_latest     UInt8 COMMENT 'the branch has the run that started last in the thread; what was spawned is a line of its own'
)
AS SELECT
    b.tenant AS tenant, b.thread_id AS thread_id, b.branch_id AS branch_id, b.parent_run_id AS parent_run_id, b.agent AS agent,
    b.runs AS runs, b.tip_run_id AS tip_run_id, b.tip_status AS tip_status, b.depth AS depth,
    b.started_at AS started_at, b.updated_at AS updated_at,
    b.input_tokens AS input_tokens, b.output_tokens AS output_tokens, b.total_tokens AS total_tokens,
    b.last_first = max(b.last_first) OVER (PARTITION BY b.tenant, b.thread_id, b.line) AS is_latest
FROM
(
    SELECT
        r.tenant AS tenant, r.thread_id AS thread_id, r.branch_id AS branch_id,
        argMin(r.parent_run_id, (r.raw_first, r.run_id)) AS parent_run_id,
        argMin(r.agent, (r.raw_first, r.run_id)) AS agent,
        count() AS runs,
        argMax(r.run_id, (r.raw_first, r.run_id)) AS tip_run_id,
        argMax(r.status, (r.raw_first, r.run_id)) AS tip_status,
        max(r.depth) AS depth,
        min(r.started_at) AS started_at, max(r.updated_at) AS updated_at,
        sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens, sum(r.total_tokens) AS total_tokens,
        max((r.raw_first, r.run_id)) AS last_first, any(if(r.spawned, r.root_run_id, '')) AS line
    FROM runs AS r FINAL
    GROUP BY r.tenant, r.thread_id, r.branch_id
) AS b;
