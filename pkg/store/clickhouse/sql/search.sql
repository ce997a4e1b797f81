-- A page of the runs that a filter selects. The inner statement finds them by narrow columns. PREWHERE, on the sorting key, which all versions of a row
-- share, has the other columns read of their granules only.
SELECT
    thread_id, run_id, parent_run_id, branch_id, depth, status, agent, labels, started_at, ended_at, duration_ms, time_to_first_token_ms,
    models, input_tokens, output_tokens, tool_calls, open_interrupts, message_count, error_code, error_message, rewrote,
    JSONExtractString(head, 'facts', 'question') AS question, JSONExtractString(head, 'facts', 'reply') AS reply
FROM runs FINAL
PREWHERE tenant = {tenant:String} AND (thread_id, run_id) IN (
    SELECT thread_id, run_id
    FROM runs FINAL
    WHERE {{template "selected" .}}
    {{- if .After}}
      AND ({{.Key}}, thread_id, run_id) {{if .Ascending}}>{{else}}<{{end}} ({key:Int64}, {after_thread:String}, {after_run:String})
    {{- end}}
    ORDER BY {{.Key}} {{.Direction}}, thread_id {{.Direction}}, run_id {{.Direction}}
    LIMIT {limit:UInt32})
ORDER BY {{.Key}} {{.Direction}}, thread_id {{.Direction}}, run_id {{.Direction}}
LIMIT {limit:UInt32}
