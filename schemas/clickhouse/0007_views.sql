-- Views for people and dashboards. Each contains FINAL and the comparison of versions that tells which rows count, so a
-- question needs neither. A condition on tenant and thread_id reaches the tables' primary key.

CREATE TABLE IF NOT EXISTS prices /* on cluster */
(
    model              String COMMENT 'the model, as token usage names it',
    input_per_million  Float64 COMMENT 'price of a million input tokens, in the currency that you choose',
    output_per_million Float64 COMMENT 'price of a million output tokens',
    since              DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'the row written last counts'
)
ENGINE = /* replicated */ReplacingMergeTree(since)
ORDER BY model
COMMENT 'Prices by model, for the column cost of v_runs. Skein writes none: insert your own.';

CREATE VIEW IF NOT EXISTS v_runs /* on cluster */ AS
WITH
    (SELECT mapFromArrays(groupArray(model), groupArray(input_per_million)) FROM prices FINAL) AS input_price,
    (SELECT mapFromArrays(groupArray(model), groupArray(output_per_million)) FROM prices FINAL) AS output_price
SELECT
    tenant, thread_id, run_id, client_run_id, parent_run_id, parent_by, spawned_by, branch_id, root_run_id, depth,
    status, agent, labels, error_code, error_message, cancelled_by, rewrote, asked,
    JSONExtractString(head, 'facts', 'question') AS question, JSONExtractString(head, 'facts', 'reply') AS reply,
    JSONExtractString(head, 'facts', 'resumed') AS resumed,
    started_at, ended_at, time_to_first_token_ms, duration_ms,
    message_count, own_messages, input_messages, open_interrupts, pending_tool_calls, resumes,
    raw_events, event_bytes_sum AS event_bytes, events, tool_calls, tool_calls_sum, anomalies, anomalies_sum,
    models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens, reasoning_tokens, cached_input_tokens,
    if(empty(models) OR NOT arrayAll(m -> mapContains(input_price, m), models), NULL,
       arraySum((m, i, o) -> (i * input_price[m] + o * output_price[m]) / 1000000, models, model_input_tokens, model_output_tokens)) AS cost,
    synthetic, truncated, raw_lost, raw_partition, raw_first, raw_next, version
FROM runs FINAL;

CREATE VIEW IF NOT EXISTS v_messages /* on cluster */ AS
SELECT
    m.tenant AS tenant, m.thread_id AS thread_id, m.run_id AS run_id, m.input AS input, m.idx AS idx,
    m.message_id AS message_id, m.role AS role,
    if(JSONType(m.raw, 'content') = 'String', JSONExtractString(m.raw, 'content'),
       arrayStringConcat(arrayFilter(t -> t != '', arrayMap(p -> JSONExtractString(p, 'text'), JSONExtractArrayRaw(m.raw, 'content'))), '\n')) AS text,
    length(m.raw) AS bytes,
    r.agent AS agent, if(length(r.models) = 1, r.models[1], '') AS model, r.total_tokens AS run_tokens,
    r.status AS status, r.started_at AS started_at, m.raw AS raw
FROM (SELECT * FROM messages FINAL) AS m
INNER JOIN (SELECT tenant, thread_id, run_id, version, agent, models, total_tokens, status, started_at FROM runs FINAL WHERE status != 'running') AS r
    ON r.tenant = m.tenant AND r.thread_id = m.thread_id AND r.run_id = m.run_id AND r.version = m.version;

CREATE VIEW IF NOT EXISTS v_tool_calls /* on cluster */ AS
SELECT
    c.tenant AS tenant, c.thread_id AS thread_id, c.tool_call_id AS tool_call_id,
    argMinIf(c.run_id, (c.started_at, c.run_id, c.idx), c.made) AS run_id,
    argMinIf(c.idx, (c.started_at, c.run_id, c.idx), c.made) AS idx,
    argMinIf(c.name, (c.started_at, c.run_id, c.idx), c.made) AS name,
    argMinIf(c.agent, (c.started_at, c.run_id, c.idx), c.made) AS agent,
    argMinIf(c.model, (c.started_at, c.run_id, c.idx), c.made) AS model,
    argMinIf(c.status, (c.started_at, c.run_id, c.idx), c.made) AS status,
    minIf(c.started_at, c.made) AS run_started_at,
    argMinIf(c.argument_bytes, (c.started_at, c.run_id, c.idx), c.made) AS argument_bytes,
    toBool(max(c.answered)) AS has_result,
    max(c.result_bytes) AS result_bytes,
    toBool(max(c.failed)) AS failed,
    max(c.error) AS error,
    countIf(NOT c.made) AS later_results
FROM
(
    SELECT t.tenant AS tenant, t.thread_id AS thread_id, t.run_id AS run_id, t.idx AS idx, t.tool_call_id AS tool_call_id, t.name AS name,
           t.agent AS agent, t.model AS model, t.started_at AS started_at, t.argument_bytes AS argument_bytes, t.made AS made,
           t.answered AS answered, t.result_bytes AS result_bytes, t.failed AS failed, t.error AS error, r.status AS status
    FROM (SELECT * FROM tool_calls FINAL) AS t
    INNER JOIN (SELECT tenant, thread_id, run_id, version, status FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = t.tenant AND r.thread_id = t.thread_id AND r.run_id = t.run_id AND r.version = t.version
) AS c
GROUP BY c.tenant, c.thread_id, c.tool_call_id
HAVING countIf(c.made) > 0;

CREATE VIEW IF NOT EXISTS v_interrupts /* on cluster */ AS
SELECT
    e.tenant AS tenant, e.thread_id AS thread_id, e.interrupt_id AS interrupt_id,
    argMinIf(e.run_id, (e.at, e.run_id), e.opened) AS run_id,
    argMinIf(e.agent, (e.at, e.run_id), e.opened) AS agent,
    argMinIf(e.reason, (e.at, e.run_id), e.opened) AS reason,
    argMinIf(e.message, (e.at, e.run_id), e.opened) AS message,
    argMinIf(e.tool_call_id, (e.at, e.run_id), e.opened) AS tool_call_id,
    minIf(e.at, e.opened) AS opened_at,
    argMinIf(e.expires_at, (e.at, e.run_id), e.opened) AS expires_at,
    countIf(NOT e.opened) AS answers,
    if(countIf(NOT e.opened) = 0, NULL, minIf(e.at, NOT e.opened)) AS answered_at,
    argMinIf(e.run_id, (e.at, e.run_id), NOT e.opened) AS answered_by_run_id,
    argMinIf(e.answer, (e.at, e.run_id), NOT e.opened) AS answer,
    if(countIf(NOT e.opened) = 0, NULL, dateDiff('millisecond', minIf(e.at, e.opened), minIf(e.at, NOT e.opened))) AS wait_ms
FROM
(
    SELECT i.tenant AS tenant, i.thread_id AS thread_id, i.run_id AS run_id, i.interrupt_id AS interrupt_id, toBool(1) AS opened, i.opened_at AS at,
           i.agent AS agent, i.reason AS reason, i.message AS message, i.tool_call_id AS tool_call_id, i.expires_at AS expires_at, '' AS answer
    FROM (SELECT * FROM interrupts FINAL) AS i
    INNER JOIN (SELECT tenant, thread_id, run_id, version FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = i.tenant AND r.thread_id = i.thread_id AND r.run_id = i.run_id AND r.version = i.version
    UNION ALL
    SELECT a.tenant AS tenant, a.thread_id AS thread_id, a.run_id AS run_id, a.interrupt_id AS interrupt_id, toBool(0) AS opened, a.answered_at AS at,
           '' AS agent, '' AS reason, '' AS message, '' AS tool_call_id, NULL AS expires_at, a.status AS answer
    FROM (SELECT * FROM answers FINAL) AS a
    INNER JOIN (SELECT tenant, thread_id, run_id, version FROM runs FINAL WHERE status != 'running') AS r
        ON r.tenant = a.tenant AND r.thread_id = a.thread_id AND r.run_id = a.run_id AND r.version = a.version
) AS e
GROUP BY e.tenant, e.thread_id, e.interrupt_id
HAVING countIf(e.opened) > 0;

CREATE VIEW IF NOT EXISTS v_branches /* on cluster */ AS
SELECT
    b.tenant AS tenant, b.thread_id AS thread_id, b.branch_id AS branch_id, b.parent_run_id AS parent_run_id, b.agent AS agent,
    b.runs AS runs, b.tip_run_id AS tip_run_id, b.tip_status AS tip_status, b.depth AS depth,
    b.started_at AS started_at, b.updated_at AS updated_at,
    b.input_tokens AS input_tokens, b.output_tokens AS output_tokens, b.total_tokens AS total_tokens,
    b.last_first = max(b.last_first) OVER (PARTITION BY b.tenant, b.thread_id) AS is_latest
FROM
(
    SELECT
        r.tenant AS tenant, r.thread_id AS thread_id, r.branch_id AS branch_id,
        argMin(r.parent_run_id, (r.raw_first, r.run_id)) AS parent_run_id,
        argMin(r.agent, (r.raw_first, r.run_id)) AS agent,
        count() AS runs,
        argMax(r.run_id, (r.raw_first, r.run_id)) AS tip_run_id,
        argMax(r.status, (r.raw_first, r.run_id)) AS tip_status,
        max(r.depth) AS depth,
        min(r.started_at) AS started_at, max(r.updated_at) AS updated_at,
        sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens, sum(r.total_tokens) AS total_tokens,
        max((r.raw_first, r.run_id)) AS last_first
    FROM (SELECT * FROM runs FINAL) AS r
    GROUP BY r.tenant, r.thread_id, r.branch_id
) AS b;

-- What the columns mean. docs/sql.md is made from these comments.

ALTER TABLE runs /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS client_run_id 'the id as the agent gave it, where the run has another one',
    COMMENT COLUMN IF EXISTS parent_run_id 'the run of the same thread that this one goes on from; empty of a root',
    COMMENT COLUMN IF EXISTS parent_by 'how the parent was found: explicit, content, latest or none',
    COMMENT COLUMN IF EXISTS spawned_by 'a parent that was named and is no run of this thread',
    COMMENT COLUMN IF EXISTS branch_id 'id of the first run of the branch',
    COMMENT COLUMN IF EXISTS root_run_id 'id of the first run of the tree',
    COMMENT COLUMN IF EXISTS depth 'runs between this one and its root; 0 of a root',
    COMMENT COLUMN IF EXISTS status 'running, finished, error, interrupted, cancelled or abandoned',
    COMMENT COLUMN IF EXISTS agent 'who produced the run',
    COMMENT COLUMN IF EXISTS labels 'labels of the run, by key',
    COMMENT COLUMN IF EXISTS synthetic 'Skein wrote the end of the run',
    COMMENT COLUMN IF EXISTS truncated 'the record was cut at the limit of its size; skein.events has all',
    COMMENT COLUMN IF EXISTS raw_lost 'events were gone from skein.events before they were folded',
    COMMENT COLUMN IF EXISTS started_at 'start of the run, by its events, else by Kafka',
    COMMENT COLUMN IF EXISTS ended_at 'end of the run; NULL while it is running',
    COMMENT COLUMN IF EXISTS time_to_first_token_ms 'milliseconds from the start to the first text; NULL where there is none',
    COMMENT COLUMN IF EXISTS duration_ms 'milliseconds from the start to the end',
    COMMENT COLUMN IF EXISTS raw_partition 'partition of skein.events and of skein.runs',
    COMMENT COLUMN IF EXISTS raw_first 'offset of the first event',
    COMMENT COLUMN IF EXISTS raw_next 'offset behind the last event',
    COMMENT COLUMN IF EXISTS raw_events 'events that were folded',
    COMMENT COLUMN IF EXISTS message_count 'messages in the history at the end of the run',
    COMMENT COLUMN IF EXISTS own_messages 'messages that the run added or changed',
    COMMENT COLUMN IF EXISTS input_messages 'messages that the input brought',
    COMMENT COLUMN IF EXISTS open_interrupts 'interrupts that the run ended with',
    COMMENT COLUMN IF EXISTS pending_tool_calls 'tool calls that the run left to the client',
    COMMENT COLUMN IF EXISTS resumes 'answers to interrupts in the input',
    COMMENT COLUMN IF EXISTS events 'events by type',
    COMMENT COLUMN IF EXISTS tool_calls 'tool calls by name',
    COMMENT COLUMN IF EXISTS tool_calls_sum 'tool calls',
    COMMENT COLUMN IF EXISTS anomalies 'violations of the protocol by rule',
    COMMENT COLUMN IF EXISTS anomalies_sum 'violations of the protocol',
    COMMENT COLUMN IF EXISTS models 'models that reported token usage, sorted; empty text where one has no name',
    COMMENT COLUMN IF EXISTS model_input_tokens 'input tokens, in the order of models',
    COMMENT COLUMN IF EXISTS model_output_tokens 'output tokens, in the order of models',
    COMMENT COLUMN IF EXISTS input_tokens 'input tokens of all models',
    COMMENT COLUMN IF EXISTS output_tokens 'output tokens of all models',
    COMMENT COLUMN IF EXISTS total_tokens 'tokens in total, as the models reported them',
    COMMENT COLUMN IF EXISTS reasoning_tokens 'tokens spent on reasoning',
    COMMENT COLUMN IF EXISTS cached_input_tokens 'input tokens that came from a cache',
    COMMENT COLUMN IF EXISTS version 'offset of the record in skein.runs',
    COMMENT COLUMN IF EXISTS deleted '1: the run was erased; readers with FINAL do not see the row',
    COMMENT COLUMN IF EXISTS base 'the sealed run whose history the messages are told against',
    COMMENT COLUMN IF EXISTS updated_at 'ended_at, else started_at',
    COMMENT COLUMN IF EXISTS event_bytes 'bytes of events by type',
    COMMENT COLUMN IF EXISTS event_bytes_sum 'bytes of events',
    COMMENT COLUMN IF EXISTS model_total_tokens 'tokens in total, in the order of models',
    COMMENT COLUMN IF EXISTS cache_write_input_tokens 'input tokens that were written to a cache',
    COMMENT COLUMN IF EXISTS fold_version 'rules of the fold that made the record',
    COMMENT COLUMN IF EXISTS record 'the run record as JSON, without messages, state and open fold';

ALTER TABLE messages /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS input '1: a message of the input, 0: one that the run added or changed',
    COMMENT COLUMN IF EXISTS idx 'place in its list, from 0',
    COMMENT COLUMN IF EXISTS version 'offset of the record in skein.runs; the row counts only where the row of runs has the same',
    COMMENT COLUMN IF EXISTS message_id 'id of the message',
    COMMENT COLUMN IF EXISTS role 'role of the message',
    COMMENT COLUMN IF EXISTS raw 'the message as JSON, byte for byte';

ALTER TABLE states /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS version 'offset of the record in skein.runs; the row counts only where the row of runs has the same',
    COMMENT COLUMN IF EXISTS state 'the state at the end of the run as JSON; empty where it is that of the base';

ALTER TABLE positions /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant; empty: every tenant',
    COMMENT COLUMN IF EXISTS raw_partition 'partition of skein.events',
    COMMENT COLUMN IF EXISTS raw_next 'events below this offset are indexed';

ALTER TABLE erasures /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the erased thread',
    COMMENT COLUMN IF EXISTS below 'events of the thread below this offset of skein.events are erased',
    COMMENT COLUMN IF EXISTS at 'time of the erasure record',
    COMMENT COLUMN IF EXISTS version 'offset of the erasure record in skein.runs';

ALTER TABLE v_runs /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS client_run_id 'the id as the agent gave it, where the run has another one',
    COMMENT COLUMN IF EXISTS parent_run_id 'the run of the same thread that this one goes on from; empty of a root',
    COMMENT COLUMN IF EXISTS parent_by 'how the parent was found: explicit, content, latest or none',
    COMMENT COLUMN IF EXISTS spawned_by 'a parent that was named and is no run of this thread',
    COMMENT COLUMN IF EXISTS branch_id 'id of the first run of the branch',
    COMMENT COLUMN IF EXISTS root_run_id 'id of the first run of the tree',
    COMMENT COLUMN IF EXISTS depth 'runs between this one and its root; 0 of a root',
    COMMENT COLUMN IF EXISTS status 'running, finished, error, interrupted, cancelled or abandoned',
    COMMENT COLUMN IF EXISTS agent 'who produced the run',
    COMMENT COLUMN IF EXISTS labels 'labels of the run, by key',
    COMMENT COLUMN IF EXISTS synthetic 'Skein wrote the end of the run',
    COMMENT COLUMN IF EXISTS truncated 'the record was cut at the limit of its size; skein.events has all',
    COMMENT COLUMN IF EXISTS raw_lost 'events were gone from skein.events before they were folded',
    COMMENT COLUMN IF EXISTS started_at 'start of the run, by its events, else by Kafka',
    COMMENT COLUMN IF EXISTS ended_at 'end of the run; NULL while it is running',
    COMMENT COLUMN IF EXISTS time_to_first_token_ms 'milliseconds from the start to the first text; NULL where there is none',
    COMMENT COLUMN IF EXISTS duration_ms 'milliseconds from the start to the end',
    COMMENT COLUMN IF EXISTS raw_partition 'partition of skein.events and of skein.runs',
    COMMENT COLUMN IF EXISTS raw_first 'offset of the first event',
    COMMENT COLUMN IF EXISTS raw_next 'offset behind the last event',
    COMMENT COLUMN IF EXISTS raw_events 'events that were folded',
    COMMENT COLUMN IF EXISTS message_count 'messages in the history at the end of the run',
    COMMENT COLUMN IF EXISTS own_messages 'messages that the run added or changed',
    COMMENT COLUMN IF EXISTS input_messages 'messages that the input brought',
    COMMENT COLUMN IF EXISTS open_interrupts 'interrupts that the run ended with',
    COMMENT COLUMN IF EXISTS pending_tool_calls 'tool calls that the run left to the client',
    COMMENT COLUMN IF EXISTS resumes 'answers to interrupts in the input',
    COMMENT COLUMN IF EXISTS events 'events by type',
    COMMENT COLUMN IF EXISTS tool_calls 'tool calls by name',
    COMMENT COLUMN IF EXISTS tool_calls_sum 'tool calls',
    COMMENT COLUMN IF EXISTS anomalies 'violations of the protocol by rule',
    COMMENT COLUMN IF EXISTS anomalies_sum 'violations of the protocol',
    COMMENT COLUMN IF EXISTS models 'models that reported token usage, sorted; empty text where one has no name',
    COMMENT COLUMN IF EXISTS model_input_tokens 'input tokens, in the order of models',
    COMMENT COLUMN IF EXISTS model_output_tokens 'output tokens, in the order of models',
    COMMENT COLUMN IF EXISTS input_tokens 'input tokens of all models',
    COMMENT COLUMN IF EXISTS output_tokens 'output tokens of all models',
    COMMENT COLUMN IF EXISTS total_tokens 'tokens in total, as the models reported them',
    COMMENT COLUMN IF EXISTS reasoning_tokens 'tokens spent on reasoning',
    COMMENT COLUMN IF EXISTS cached_input_tokens 'input tokens that came from a cache',
    COMMENT COLUMN IF EXISTS version 'offset of the record in skein.runs',
    COMMENT COLUMN IF EXISTS error_code 'code of the RUN_ERROR that ended the run, at most 128 bytes of it',
    COMMENT COLUMN IF EXISTS error_message 'message of the RUN_ERROR that ended the run, at most 1,024 bytes of it',
    COMMENT COLUMN IF EXISTS cancelled_by 'who ended a cancelled run: agent, or skein where somebody stopped it through the proxy',
    COMMENT COLUMN IF EXISTS rewrote 'how the input departs from the history of the parent: replaced, summarised, trimmed, inserted, rewound, reordered, edited',
    COMMENT COLUMN IF EXISTS asked 'hash of the new messages of the input, by role and content, without ids; empty where it has none. A sibling with an equal hash is a regeneration, one with another an edit',
    COMMENT COLUMN IF EXISTS question 'first 200 characters of the last new message of a user',
    COMMENT COLUMN IF EXISTS reply 'first 200 characters of the last text that the agent wrote',
    COMMENT COLUMN IF EXISTS resumed 'first 200 characters of the payload of the first resume entry, else its status',
    COMMENT COLUMN IF EXISTS event_bytes 'bytes of events',
    COMMENT COLUMN IF EXISTS cost 'what the tokens cost by the table prices; NULL where the run names no model or one that has no price';

ALTER TABLE v_messages /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS input '1: a message of the input, 0: one that the run added or changed',
    COMMENT COLUMN IF EXISTS idx 'place in its list, from 0',
    COMMENT COLUMN IF EXISTS message_id 'id of the message',
    COMMENT COLUMN IF EXISTS role 'role of the message',
    COMMENT COLUMN IF EXISTS text 'the content where it is text, else the text parts of it, by lines',
    COMMENT COLUMN IF EXISTS bytes 'bytes of the message as JSON',
    COMMENT COLUMN IF EXISTS agent 'the agent of the run',
    COMMENT COLUMN IF EXISTS model 'the model of the run, where it names exactly one',
    COMMENT COLUMN IF EXISTS run_tokens 'tokens of the whole run: agents report none by message',
    COMMENT COLUMN IF EXISTS status 'status of the run',
    COMMENT COLUMN IF EXISTS started_at 'start of the run',
    COMMENT COLUMN IF EXISTS raw 'the message as JSON, byte for byte';

ALTER TABLE v_tool_calls /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS tool_call_id 'id of the call; calls of one id in a thread are one row',
    COMMENT COLUMN IF EXISTS run_id 'the run that made the call first',
    COMMENT COLUMN IF EXISTS idx 'place among the calls of the run',
    COMMENT COLUMN IF EXISTS name 'name of the tool',
    COMMENT COLUMN IF EXISTS agent 'the agent of the run',
    COMMENT COLUMN IF EXISTS model 'the model of the run, where it names exactly one',
    COMMENT COLUMN IF EXISTS status 'status of the run',
    COMMENT COLUMN IF EXISTS run_started_at 'start of the run',
    COMMENT COLUMN IF EXISTS argument_bytes 'bytes of the arguments',
    COMMENT COLUMN IF EXISTS has_result 'the run, or the input of a later run, has the result',
    COMMENT COLUMN IF EXISTS result_bytes 'bytes of the text of the result',
    COMMENT COLUMN IF EXISTS failed 'the result has an error',
    COMMENT COLUMN IF EXISTS error 'at most 1,024 bytes of that error',
    COMMENT COLUMN IF EXISTS later_results 'results that came with the input of later runs';

ALTER TABLE v_interrupts /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS interrupt_id 'id of the interrupt',
    COMMENT COLUMN IF EXISTS run_id 'the run that the interrupt ended',
    COMMENT COLUMN IF EXISTS agent 'the agent of that run',
    COMMENT COLUMN IF EXISTS reason 'its reason',
    COMMENT COLUMN IF EXISTS message 'at most 1,024 bytes of what it asks',
    COMMENT COLUMN IF EXISTS tool_call_id 'the tool call that it is about',
    COMMENT COLUMN IF EXISTS opened_at 'end of the run',
    COMMENT COLUMN IF EXISTS expires_at 'when an answer comes too late',
    COMMENT COLUMN IF EXISTS answers 'answers so far; two are two branches',
    COMMENT COLUMN IF EXISTS answered_at 'start of the first run that answers; NULL while none does',
    COMMENT COLUMN IF EXISTS answered_by_run_id 'the first run that answers',
    COMMENT COLUMN IF EXISTS answer 'its status: resolved or cancelled',
    COMMENT COLUMN IF EXISTS wait_ms 'milliseconds from opened_at to answered_at';

ALTER TABLE v_branches /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS branch_id 'id of the first run of the branch',
    COMMENT COLUMN IF EXISTS parent_run_id 'the run that the branch parts from; empty of a root',
    COMMENT COLUMN IF EXISTS agent 'the agent of the first run',
    COMMENT COLUMN IF EXISTS runs 'runs of the branch',
    COMMENT COLUMN IF EXISTS tip_run_id 'the last run of the branch',
    COMMENT COLUMN IF EXISTS tip_status 'status of that run',
    COMMENT COLUMN IF EXISTS depth 'greatest depth of its runs',
    COMMENT COLUMN IF EXISTS started_at 'start of the first run',
    COMMENT COLUMN IF EXISTS updated_at 'end of the last one that ended, or start of one that is running',
    COMMENT COLUMN IF EXISTS input_tokens 'input tokens of all runs',
    COMMENT COLUMN IF EXISTS output_tokens 'output tokens of all runs',
    COMMENT COLUMN IF EXISTS total_tokens 'tokens of all runs',
    COMMENT COLUMN IF EXISTS is_latest 'the branch has the run that started last in the thread';
