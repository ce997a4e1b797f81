-- How long interrupts wait for their first answer, and how many have none, by agent.
SELECT
    agent,
    count() AS interrupts,
    countIf(answers = 0) AS unanswered,
    if(count(wait_ms) = 0, NULL, quantileExact(0.5)(wait_ms)) AS p50_wait_ms,
    if(count(wait_ms) = 0, NULL, quantileExact(0.95)(wait_ms)) AS p95_wait_ms,
    max(wait_ms) AS longest_wait_ms
FROM v_interrupts
WHERE tenant = {tenant:String} AND opened_at >= {from:DateTime64(3, 'UTC')} AND opened_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
