-- Threads of which no run is open and the last one was recorded before a time, with the greatest versions of their rows of runs and of thread_details: narrow
-- columns of the tenant. Of rows that do not have that time, the end counts, which is by the agent's clock.
SELECT r.thread_id, r.newest, d.newest
FROM (
SELECT thread_id, max(version) AS newest
FROM runs FINAL
WHERE tenant = {tenant:String}
GROUP BY thread_id
HAVING max(if(toUnixTimestamp(recorded_at) = 0, updated_at, toDateTime64(recorded_at, 3, 'UTC'))) < fromUnixTimestamp64Milli({before:Int64}, 'UTC') AND countIf(status = 'running') = 0
ORDER BY thread_id
LIMIT {limit:UInt32}
) AS r LEFT JOIN (
    SELECT thread_id, max(version) AS newest FROM thread_details WHERE tenant = {tenant:String} GROUP BY thread_id
) AS d ON d.thread_id = r.thread_id
