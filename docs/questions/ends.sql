-- How runs end, by agent: abandoned and cancelled ones, and errors by their code.
SELECT agent, status, error_code, cancelled_by, count() AS runs
FROM v_runs_by_time
WHERE tenant = {tenant:String} AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent, status, error_code, cancelled_by
ORDER BY agent, status, error_code, cancelled_by
