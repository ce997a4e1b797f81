-- How often tools fail, are left without a result, and how long calls take in milliseconds, by tool. Of durations there are those of calls whose result came
-- in the same run, and that their run record has the times of.
SELECT
    name AS tool,
    count() AS calls,
    countIf(failed) AS failures,
    countIf(NOT has_result) AS without_result,
    failures / calls AS failure_rate,
    count(duration_ms) AS timed,
    if(timed = 0, NULL, quantileExact(0.95)(duration_ms)) AS p95_ms
FROM v_tool_calls
WHERE tenant = {tenant:String} AND run_started_at >= {from:DateTime64(3, 'UTC')} AND run_started_at < {to:DateTime64(3, 'UTC')}
GROUP BY tool
ORDER BY tool
