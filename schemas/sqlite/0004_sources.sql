-- Which skein.runs the rows are of: the id that the brokers have given to the topic. One row, once an indexer has
-- begun. Versions are offsets, and those of two topics cannot be compared.

CREATE TABLE sources (
    topic_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
