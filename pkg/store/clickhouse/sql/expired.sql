-- Threads of which no run is open and the last one ended, or started, before a time, with the greatest version of their rows: narrow columns of the tenant.
SELECT thread_id, max(version)
FROM runs FINAL
WHERE tenant = {tenant:String}
GROUP BY thread_id
HAVING max(updated_at) < fromUnixTimestamp64Milli({before:Int64}, 'UTC') AND countIf(status = 'running') = 0
ORDER BY thread_id
LIMIT {limit:UInt32}
