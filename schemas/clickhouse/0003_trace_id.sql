-- The trace that a run belongs to, as its callers and agents reported it.
ALTER TABLE runs /* on cluster */ ADD COLUMN IF NOT EXISTS trace_id String COMMENT 'id of the trace that the run belongs to; empty where none is known' CODEC(ZSTD(1));

CREATE VIEW IF NOT EXISTS v_traces /* on cluster */
(
    tenant    String COMMENT 'the tenant',
    thread_id String COMMENT 'the thread',
    run_id    String COMMENT 'the run; those without a row have no trace',
    trace_id  String COMMENT 'id of the trace that the run belongs to (W3C Trace Context), as 32 hexadecimal digits'
)
AS SELECT tenant, thread_id, run_id, trace_id
FROM runs FINAL
WHERE trace_id != '';
