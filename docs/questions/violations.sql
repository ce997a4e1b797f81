-- Violations of the AG-UI protocol, by agent and rule.
SELECT agent, violation.1 AS rule, count() AS runs, sum(violation.2) AS violations
FROM
(
    SELECT agent, arrayJoin(arrayZip(mapKeys(anomalies), mapValues(anomalies))) AS violation
    FROM v_runs_by_time
    WHERE tenant = {tenant:String} AND anomalies_sum > 0
      AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
)
GROUP BY agent, rule
ORDER BY agent, rule
