-- Groups of the runs that a filter selects, and their measures; those with the greatest first measure where there are too many.
SELECT
    [{{range $i, $d := .By}}{{if $i}}, {{end}}toString(d{{$i}}){{end}}]::Array(String) AS keys,
    [{{range $i, $m := .Measures}}{{if $i}}, {{end}}toNullable(toInt64({{$m}})){{end}}]::Array(Nullable(Int64)) AS measured
FROM (
    SELECT
        {{- range $i, $d := .By}}
        {{$d}} AS d{{$i}},{{end}}
        thread_id, run_id, status, open_interrupts, models, model_input_tokens, model_output_tokens, input_tokens, output_tokens, total_tokens, duration_ms, time_to_first_token_ms, tool_calls, tool_calls_sum
    FROM {{template "table" .Selection}} FINAL
    WHERE {{template "selected" .Selection}}) AS r
{{- if or .Failures .Durations}}
LEFT JOIN (
    SELECT thread_id, run_id, {{if .ByTool}}name, {{end}}countIf(failed) AS failures, groupArray(duration_ms) AS durations
    FROM v_tool_calls
    WHERE tenant = {tenant:String}{{if not .Durations}} AND failed{{end}}
    {{- if .Selection.Narrow}} AND thread_id IN (SELECT thread_id FROM {{template "table" .Selection}} WHERE {{template "plain" .Selection}}){{end}}
    GROUP BY thread_id, run_id{{if .ByTool}}, name{{end}}) AS f
ON f.thread_id = r.thread_id AND f.run_id = r.run_id{{if .ByTool}} AND f.name = r.{{.ByTool}}{{end}}
{{- end}}
{{- if .Siblings}}
LEFT JOIN (
    {{template "siblings" .Selection}}) AS w
ON w.thread_id = r.thread_id AND w.run_id = r.run_id
{{- end}}
{{- if .By}}
GROUP BY {{range $i, $d := .By}}{{if $i}}, {{end}}d{{$i}}{{end}}
{{- end}}
ORDER BY ifNull(measured[1], -1) DESC, keys
LIMIT {limit:UInt32}
