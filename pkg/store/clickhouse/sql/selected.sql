{{- /* Conditions on runs. What needs other rows of the tenant is in subqueries, which look at the threads of "plain" conditions only. Those are
       found without FINAL: stale rows only make them more. */ -}}
{{define "plain" -}}
tenant = {tenant:String}
{{- if .Prefix}} AND startsWith(thread_id, {prefix:String}){{end}}
{{- if .Since}} AND started_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC'){{end}}
{{- if .Until}} AND started_at < fromUnixTimestamp64Milli({until:Int64}, 'UTC'){{end}}
{{- if .Statuses}} AND status IN {statuses:Array(String)}{{end}}
{{- if .Agent}} AND agent = {agent:String}{{end}}
{{- if .Model}} AND has(models, {model:String}){{end}}
{{- if .Tool}} AND mapContains(tool_calls, {tool:String}){{end}}
{{- if .Depth}} AND depth BETWEEN {min_depth:UInt32} AND {max_depth:UInt32}{{end}}
{{- if .AnyError}} AND status = 'error'{{else if .Error}} AND status = 'error' AND error_code = {error:String}{{end}}
{{- range .Labels}} AND mapContains(labels, { {{- .Key}}:String}){{if .Value}} AND labels[{ {{- .Key}}:String}] = { {{- .Value}}:String}{{end}}{{end}}
{{- end}}

{{- /* The table with the runs. A prefix of threads is a range of the key of runs; all else is found in the order of time. The latter may
       have rows that count no longer (ADR 017) of runs that have a tombstone or were written before their first event: few, found by narrow
       columns. Of those, runs has the row that counts. */ -}}
{{define "table"}}{{if .ByThread}}runs{{else}}runs_by_time{{end}}{{end}}

{{define "selected" -}}
{{template "plain" .}}
{{- if not .ByThread}} AND (
    run_hash NOT IN (
        SELECT sipHash64(tenant, thread_id, run_id) FROM runs WHERE tenant = {tenant:String} AND deleted = 1
        UNION ALL
        SELECT run_hash FROM runs_by_time WHERE tenant = {tenant:String} AND raw_events = 0)
    OR (run_hash, version) IN (
        SELECT sipHash64(tenant, thread_id, run_id), version
        FROM runs FINAL
        WHERE tenant = {tenant:String} AND (thread_id, run_id) IN (
            SELECT thread_id, run_id FROM runs WHERE tenant = {tenant:String} AND deleted = 1
            UNION ALL
            SELECT thread_id, run_id FROM runs_by_time WHERE tenant = {tenant:String} AND raw_events = 0)))
{{- end}}
{{- if .Archived}} AND thread_id {{if .NotArchived}}NOT {{end}}IN (
    SELECT thread_id FROM thread_details FINAL WHERE tenant = {tenant:String} AND name = 'archived')
{{- end}}
{{- if .Words}} AND (thread_id, run_id, version) IN (
    SELECT thread_id, run_id, version
    FROM messages FINAL
    WHERE tenant = {tenant:String}
    {{- if .Narrow}} AND (thread_id, run_id) IN (SELECT thread_id, run_id FROM {{template "table" .}} WHERE {{template "plain" .}}){{end}}
    {{- template "words" .}}
    UNION ALL
    {{template "ids" .}})
{{- end}}
{{- if or .Rewrote .Pending}} AND (thread_id, run_id) IN (
    SELECT thread_id, run_id
    FROM runs FINAL
    WHERE tenant = {tenant:String}{{if .Rewrote}} AND has(rewrote, {rewrote:String}){{end}}{{if .Pending}} AND pending_tool_calls > 0{{end}}
    {{- if .Narrow}} AND thread_id IN (SELECT thread_id FROM {{template "table" .}} WHERE {{template "plain" .}}){{end}})
{{- end}}
{{- if .AsksAgain}} AND (thread_id, run_id) IN (
    SELECT thread_id, run_id FROM ({{template "siblings" .}}) WHERE {{if .Regenerations}}same > 1{{else}}same = 1 AND place > 1{{end}})
{{- end}}
{{- end}}

{{- /* As store.Folded makes it of store.TextOf, and the index words of messages has it. */ -}}
{{define "folded" -}}
if(notEmpty(folded), folded, lowerUTF8(if(JSONType(raw, 'content') = 'String', JSONExtractString(raw, 'content'),
            arrayStringConcat(arrayMap(p -> if(JSONExtractString(p, 'type') = 'text', JSONExtractString(p, 'text'), ''), JSONExtractArrayRaw(raw, 'content')), '\n'))))
{{- end}}

{{define "ids" -}}
SELECT thread_id, run_id, version FROM runs WHERE tenant = {tenant:String}
    {{- if .Narrow}} AND (thread_id, run_id) IN (SELECT thread_id, run_id FROM {{template "table" .}} WHERE {{template "plain" .}}){{end}} AND (1
        {{- range .Words}} AND position(lower(thread_id), { {{- .InID}}:String}) > 0{{end}} OR 1
        {{- range .Words}} AND position(lower(run_id), { {{- .InID}}:String}) > 0{{end}} OR thread_id IN (
        SELECT thread_id FROM thread_details FINAL WHERE tenant = {tenant:String} AND name = 'title'
        {{- range .Words}} AND position(folded, { {{- .Param}}:String}) > 0{{end}}))
{{- end}}

{{- /* The places of runs among those of one parent that ask something, and among those of them that ask the same: what asks the same as an
       earlier one is a regeneration, what asks something else than all earlier ones an edit. Runs without a sibling, which most are, drop out
       before the others are numbered. */ -}}
{{define "siblings" -}}
SELECT thread_id, sibling.2 AS run_id, same, place
    FROM (
        SELECT thread_id, arraySort(groupArray((raw_first, run_id, asked))) AS siblings
        FROM runs FINAL
        WHERE tenant = {tenant:String} AND asked != '' AND spawned_by = ''{{if .Narrow}} AND thread_id IN (SELECT thread_id FROM {{template "table" .}} WHERE {{template "plain" .}}){{end}}
        GROUP BY thread_id, parent_run_id
        HAVING count() > 1)
    ARRAY JOIN siblings AS sibling, arrayEnumerateUniq(siblings.3) AS same, arrayEnumerate(siblings) AS place
{{- end}}

{{define "words"}}{{range .Words}} AND {{if .Indexed}}multiSearchAny({{template "folded"}}, [{ {{- .Param}}:String}]){{else}}position({{template "folded"}}, { {{- .Param}}:String}) > 0{{end}}{{end}}{{end}}
