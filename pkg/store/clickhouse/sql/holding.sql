-- Which runs have one of these messages as their own, in a record that counts.
SELECT m.run_id, m.version
FROM
(
    SELECT DISTINCT run_id, version
    FROM messages FINAL
    WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND input = 0 AND message_id IN {ids:Array(String)}
) AS m
INNER JOIN
(
    SELECT run_id, version
    FROM runs FINAL
    WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND status != 'running'
) AS r ON r.run_id = m.run_id AND r.version = m.version
