-- The tables of which a removal of deleted rows was asked for so many seconds ago and has not ended, and why the server says it has not.
SELECT table, any(latest_fail_reason) AS reason
FROM system.mutations
WHERE database = {database:String} AND command LIKE '%APPLY DELETED MASK%' AND NOT is_done AND create_time <= now() - {seconds:Int64}
GROUP BY table
ORDER BY table
