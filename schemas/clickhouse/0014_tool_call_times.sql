-- When a tool call began and how long it took, by the times in the run record. Rows from before this file have neither, nor do runs that were recorded
-- before records had times, or that were begun by then. The column started_at of tool_calls stays the start of the run.

ALTER TABLE tool_calls /* on cluster */
    ADD COLUMN IF NOT EXISTS called_at   Nullable(DateTime64(3, 'UTC')) COMMENT 'when the call began; NULL where the record does not say it' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS duration_ms Nullable(Int64) COMMENT 'milliseconds from called_at to the result; NULL where the run has no result, or the record no times' CODEC(ZSTD(1));

CREATE OR REPLACE VIEW v_tool_calls /* on cluster */
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
    started_at     Nullable(DateTime64(3, 'UTC')) COMMENT 'start of the call, by its event, else by Kafka; NULL where the run record does not say it: it was made before Skein noted times, was cut, has the call from a snapshot of its messages, or the call is beyond the first 1,000 or 64 KiB of ids',
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
