-- Which threads were erased, as erasure records of skein.runs say: events of the thread below that
-- offset of skein.events are erased. at_ms is the record's time; version is its offset.

CREATE TABLE erasures (
    tenant    TEXT    NOT NULL,
    thread_id TEXT    NOT NULL,
    below     INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread_id)
) STRICT, WITHOUT ROWID;
