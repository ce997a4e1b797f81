-- What is left of the events: bytes as they came, bytes of the messages that were added, by agent.
SELECT r.agent AS agent, r.event_bytes AS event_bytes, m.message_bytes AS message_bytes
FROM
(
    SELECT agent, sum(event_bytes) AS event_bytes
    FROM v_runs
    WHERE tenant = {tenant:String} AND status != 'running' AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
    GROUP BY agent
) AS r
LEFT JOIN
(
    SELECT agent, sum(bytes) AS message_bytes
    FROM v_messages
    WHERE tenant = {tenant:String} AND input = 0 AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
    GROUP BY agent
) AS m ON m.agent = r.agent
ORDER BY agent
