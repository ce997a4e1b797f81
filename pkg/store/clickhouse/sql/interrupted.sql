-- A page of the runs that ended with an interrupt and that no run goes on from, the longest waiting first.
SELECT thread_id, run_id, version, head, record, toUnixTimestamp64Milli(updated_at) AS at
FROM runs FINAL
WHERE tenant = {tenant:String} AND status = 'interrupted' AND ({agent:String} = '' OR agent = {agent:String})
  AND (at, thread_id, run_id) > ({at:Int64}, {thread:String}, {run:String})
  AND (thread_id, run_id) NOT IN (
      SELECT thread_id, parent_run_id
      FROM runs FINAL
      WHERE tenant = {tenant:String} AND parent_run_id != ''
        AND thread_id IN (SELECT thread_id FROM runs FINAL WHERE tenant = {tenant:String} AND status = 'interrupted'))
ORDER BY at, thread_id, run_id
LIMIT {limit:UInt32}
