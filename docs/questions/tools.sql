-- How often tools fail, and are left without a result, by tool. (A run record holds no times of single calls, so there is no duration.)
SELECT
    name AS tool,
    count() AS calls,
    countIf(failed) AS failures,
    countIf(NOT has_result) AS without_result,
    failures / calls AS failure_rate
FROM v_tool_calls
WHERE tenant = {tenant:String} AND run_started_at >= {from:DateTime64(3, 'UTC')} AND run_started_at < {to:DateTime64(3, 'UTC')}
GROUP BY tool
ORDER BY tool
