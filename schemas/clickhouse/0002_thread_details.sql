-- The title of a thread, and that it is archived, each as one record of skein.runs says. Readers ask with FINAL, which leaves out deleted rows. A
-- tenant's archived threads, few of those with titles, are one range: each list of threads reads them.
CREATE TABLE IF NOT EXISTS thread_details /* on cluster */
(
    tenant    String COMMENT 'the tenant' CODEC(ZSTD(1)),
    thread_id String COMMENT 'the thread' CODEC(ZSTD(1)),
    name      LowCardinality(String) COMMENT 'title or archived',
    version   UInt64 COMMENT 'offset of the record in skein.runs' CODEC(ZSTD(1)),
    deleted   UInt8 COMMENT '1: the thread does not have it any more',
    value     String COMMENT 'the title, or true' CODEC(ZSTD(1)),
    folded    String COMMENT 'the title as searches compare it' CODEC(ZSTD(1))
)
ENGINE = /* replicated */ReplacingMergeTree(version, deleted)
ORDER BY (tenant, name, thread_id)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000;

CREATE VIEW IF NOT EXISTS v_thread_details /* on cluster */
(
    tenant    String COMMENT 'the tenant',
    thread_id String COMMENT 'the thread; those without a row have no title and are not archived',
    title     String COMMENT 'its title; empty where it has none',
    archived  Bool COMMENT 'it is archived'
)
AS SELECT
    d.tenant AS tenant, d.thread_id AS thread_id, anyIf(d.value, d.name = 'title') AS title, toBool(countIf(d.name = 'archived') > 0) AS archived
FROM thread_details AS d FINAL
GROUP BY d.tenant, d.thread_id;
