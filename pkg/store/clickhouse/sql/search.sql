-- A page of the runs that a filter selects. The inner statement finds them by narrow columns. PREWHERE, on the sorting key, which all versions of a row
-- share, has the other columns read of their granules only: few of them, as each is a file more in every part.
SELECT
    thread_id, run_id, head, {{.Key}} AS sort_key,
    labels, time_to_first_token_ms, models, model_input_tokens, model_output_tokens, tool_calls, open_interrupts
FROM {{template "table" .}} FINAL
PREWHERE {{template "key" .}} IN (
    SELECT {{template "key" .}}
    FROM {{template "table" .}} FINAL
    WHERE {{template "selected" .}}
    {{- if .After}}{{if and .ByStart (not .Ascending)}}
      AND started_at <= fromUnixTimestamp64Milli({key:Int64}, 'UTC'){{end}}
      AND ({{.Key}}, thread_id, run_id) {{if .Ascending}}>{{else}}<{{end}} ({key:Int64}, {after_thread:String}, {after_run:String})
    {{- end}}
    ORDER BY {{.Key}} {{.Direction}}, thread_id {{.Direction}}, run_id {{.Direction}}
    LIMIT {limit:UInt32})
ORDER BY {{.Key}} {{.Direction}}, thread_id {{.Direction}}, run_id {{.Direction}}
LIMIT {limit:UInt32}

{{- define "key"}}{{if .ByThread}}(tenant, thread_id, run_id){{else}}(toDate32(started_at), tenant, run_hash){{end}}{{end}}
