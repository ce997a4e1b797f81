-- How long interrupts wait for their first answer, and how many have none, by agent.
SELECT
    agent,
    count() AS interrupts,
    countIf(answers = 0) AS unanswered,
    round(avg(wait_ms)) AS average_wait_ms,
    max(wait_ms) AS longest_wait_ms
FROM v_interrupts
WHERE tenant = {tenant:String} AND opened_at >= {from:DateTime64(3, 'UTC')} AND opened_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
