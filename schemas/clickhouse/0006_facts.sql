-- What a row knows of its run beside what the record's members say, and tables of tool calls, interrupts and answers.
-- All of it is a pure function of one record. Rows from before this file have facts = 0 and empty columns, until an
-- indexer reads skein.runs again.

ALTER TABLE runs /* on cluster */
    ADD COLUMN IF NOT EXISTS facts         UInt8 COMMENT 'which rules made the columns from here on; 0: the row is older than they, and they are empty',
    ADD COLUMN IF NOT EXISTS error_code    LowCardinality(String) COMMENT 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    ADD COLUMN IF NOT EXISTS error_message String COMMENT 'message of the RUN_ERROR that ended the run, at most 1,024 bytes of it' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS cancelled_by  LowCardinality(String) COMMENT 'who ended a cancelled run: agent, or skein where somebody stopped it through the proxy',
    ADD COLUMN IF NOT EXISTS rewrote       Array(LowCardinality(String)) COMMENT 'how the input departs from the history of the parent: replaced, summarised, trimmed, inserted, rewound, reordered, edited',
    ADD COLUMN IF NOT EXISTS asked         String COMMENT 'hash of the new messages of the input, by role and content, without ids; empty where it has none. A sibling with an equal hash is a regeneration, one with another an edit' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS head          String COMMENT 'what lineage tells of the run, as JSON: the record without contents (run), and question, reply, resumed among facts' CODEC(ZSTD(3));

CREATE TABLE IF NOT EXISTS tool_calls /* on cluster */
(
    tenant         String COMMENT 'the tenant',
    thread_id      String COMMENT 'the thread',
    run_id         String COMMENT 'the run',
    idx            UInt32 COMMENT 'place among the rows of the run, from 0: calls in their order, then results',
    version        UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same',
    tool_call_id   String COMMENT 'id of the call, as the agent gave it',
    name           LowCardinality(String) COMMENT 'name of the tool; empty of a result that the input brought',
    message_id     String COMMENT 'the message that holds the call, or is the result',
    made           Bool COMMENT 'the run made the call; else the row is a result for a call of an earlier run',
    agent          LowCardinality(String) COMMENT 'the agent of the run',
    model          LowCardinality(String) COMMENT 'the model of the run, where it names exactly one',
    started_at     DateTime64(3, 'UTC') COMMENT 'start of the run' CODEC(Delta, ZSTD(1)),
    argument_bytes UInt32 COMMENT 'bytes of the arguments',
    answered       Bool COMMENT 'the record has the result',
    result_bytes   UInt32 COMMENT 'bytes of the text of the result',
    failed         Bool COMMENT 'the result has an error',
    error          String COMMENT 'at most 1,024 bytes of that error' CODEC(ZSTD(1)),
    pending        Bool COMMENT 'the run ended and left the call to the client'
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000
COMMENT 'Tool calls: one row for each call, and one for each result that came with the input of a later run.';

CREATE TABLE IF NOT EXISTS interrupts /* on cluster */
(
    tenant       String COMMENT 'the tenant',
    thread_id    String COMMENT 'the thread',
    run_id       String COMMENT 'the run that the interrupt ended',
    idx          UInt32 COMMENT 'place among those of the run, from 0',
    version      UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same',
    interrupt_id String COMMENT 'id of the interrupt',
    reason       String COMMENT 'its reason',
    message      String COMMENT 'at most 1,024 bytes of what it asks' CODEC(ZSTD(1)),
    tool_call_id String COMMENT 'the tool call that it is about',
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
    tenant       String COMMENT 'the tenant',
    thread_id    String COMMENT 'the thread',
    run_id       String COMMENT 'the run whose input answers',
    idx          UInt32 COMMENT 'place among the resume entries of the input, from 0',
    version      UInt64 COMMENT 'offset of the record in skein.runs; the row counts only where the row of runs has the same',
    interrupt_id String COMMENT 'the interrupt that is answered',
    status       LowCardinality(String) COMMENT 'resolved or cancelled',
    payload      String COMMENT 'the answer, as JSON; empty where it has none' CODEC(ZSTD(3)),
    answered_at  DateTime64(3, 'UTC') COMMENT 'start of the run that answers' CODEC(Delta, ZSTD(1))
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id, run_id, idx)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000
COMMENT 'Answers to interrupts: one row for each resume entry of an input.';
