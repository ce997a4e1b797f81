-- Which threads were erased, as erasure records of skein.runs say: events of the thread below that
-- offset of skein.events are erased. at is the record's time; version is its offset.

CREATE TABLE IF NOT EXISTS erasures /* on cluster */
(
    tenant    String,
    thread_id String,
    below     Int64,
    at        DateTime64(3, 'UTC'),
    version   UInt64
)
ENGINE = /* replicated */ReplacingMergeTree(version)
ORDER BY (tenant, thread_id)
SETTINGS non_replicated_deduplication_window = 1000;
