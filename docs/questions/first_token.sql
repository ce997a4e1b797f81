-- Time to the first token in milliseconds, by agent. Of n runs the median is that at place n/2, from 0 and rounded down, as in GET /v1/statistics.
SELECT
    agent,
    count(time_to_first_token_ms) AS runs,
    quantilesExact(0.5, 0.95, 0.99)(assumeNotNull(time_to_first_token_ms)) AS p50_p95_p99
FROM v_runs_by_time
WHERE tenant = {tenant:String} AND time_to_first_token_ms IS NOT NULL
  AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
