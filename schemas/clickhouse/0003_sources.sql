-- Which skein.runs the rows are of: the id that the brokers have given to the topic. One row, once an indexer has
-- begun. Versions are offsets, and those of two topics cannot be compared.

CREATE TABLE IF NOT EXISTS sources /* on cluster */
(
    topic_id String,
    since    DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = /* replicated */ReplacingMergeTree
ORDER BY topic_id;
