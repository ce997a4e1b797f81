-- Time to the first token in milliseconds, by agent.
SELECT
    agent,
    count(time_to_first_token_ms) AS runs,
    quantilesExactLow(0.5, 0.95, 0.99)(assumeNotNull(time_to_first_token_ms)) AS p50_p95_p99
FROM v_runs_by_time
WHERE tenant = {tenant:String} AND time_to_first_token_ms IS NOT NULL
  AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
