-- What a row knows of its run beside what the record's members say, and tables of tool calls, interrupts and answers.
-- All of it is a pure function of one record. Rows from before this file have facts = 0 and empty columns, until an
-- indexer reads skein.runs again. The columns mean the same as in ClickHouse; see docs/sql.md. Times are Unix milliseconds.

ALTER TABLE runs ADD COLUMN facts         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN error_code    TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN error_message TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN cancelled_by  TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN asked         TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN question      TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN reply         TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN resumed       TEXT    NOT NULL DEFAULT '';

CREATE TABLE tool_calls (
    tenant         TEXT    NOT NULL,
    thread_id      TEXT    NOT NULL,
    run_id         TEXT    NOT NULL,
    idx            INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    tool_call_id   TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    message_id     TEXT    NOT NULL,
    made           INTEGER NOT NULL,
    agent          TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    started_at     INTEGER NOT NULL,
    argument_bytes INTEGER NOT NULL,
    answered       INTEGER NOT NULL,
    result_bytes   INTEGER NOT NULL,
    failed         INTEGER NOT NULL,
    error          TEXT    NOT NULL,
    pending        INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread_id, run_id, idx)
) STRICT;

CREATE TABLE interrupts (
    tenant       TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    run_id       TEXT    NOT NULL,
    idx          INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    interrupt_id TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    message      TEXT    NOT NULL,
    tool_call_id TEXT    NOT NULL,
    agent        TEXT    NOT NULL,
    opened_at    INTEGER NOT NULL,
    expires_at   INTEGER,
    PRIMARY KEY (tenant, thread_id, run_id, idx)
) STRICT;

CREATE TABLE answers (
    tenant       TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    run_id       TEXT    NOT NULL,
    idx          INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    interrupt_id TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    answered_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread_id, run_id, idx)
) STRICT;
