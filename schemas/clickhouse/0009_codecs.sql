-- Codecs by measurement (docs/bench/analytics.md#bytes): ids and counts take half the bytes with ZSTD that they take with LZ4. Parts
-- are written so from here on, those that are there when they are merged.

ALTER TABLE runs /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS parent_run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS base CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS branch_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS root_run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS depth CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS message_count CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS own_messages CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS input_messages CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS raw_next CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS event_bytes_sum CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS model_input_tokens CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS model_output_tokens CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS model_total_tokens CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS input_tokens CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS output_tokens CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS total_tokens CODEC(ZSTD(1));

ALTER TABLE messages /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS idx CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS message_id CODEC(ZSTD(1));

ALTER TABLE states /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1));

ALTER TABLE tool_calls /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS idx CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS tool_call_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS message_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS argument_bytes CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS result_bytes CODEC(ZSTD(1));

ALTER TABLE interrupts /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS interrupt_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS tool_call_id CODEC(ZSTD(1));

ALTER TABLE answers /* on cluster */
    MODIFY COLUMN IF EXISTS tenant CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS thread_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS run_id CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS version CODEC(ZSTD(1)),
    MODIFY COLUMN IF EXISTS interrupt_id CODEC(ZSTD(1));
