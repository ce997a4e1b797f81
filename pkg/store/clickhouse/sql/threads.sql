-- A page of threads. The rows come in the order of the answer, so a thread is done when the next one
-- starts. Small blocks on one thread: reading ends with the block that fills the page, instead of with
-- the tenant's rows (100,000 runs, a page of 50: 12 ms, with the server's own block size 136 ms). The
-- last run is the thread's tip.
SELECT
    thread_id,
    count() AS runs,
    countIf(status = 'running') AS open_runs,
    uniqExact(branch_id) AS branches,
    min(started_at) AS thread_started_at,
    max(updated_at) AS thread_updated_at,
    argMax(run_id, (NOT spawned, raw_first, run_id)) AS last_run_id,
    argMax(status, (NOT spawned, raw_first, run_id)) AS last_status,
    argMax(message_count, (NOT spawned, raw_first, run_id)) AS last_messages
FROM runs FINAL
WHERE tenant = {tenant:String} AND startsWith(thread_id, {prefix:String}) AND thread_id > {after:String}
  AND ({archived:String} != 'yes' OR thread_id IN (
      SELECT thread_id FROM thread_details FINAL WHERE tenant = {tenant:String} AND name = 'archived' AND thread_id > {after:String}))
  AND ({archived:String} != 'no' OR thread_id NOT IN (
      SELECT thread_id FROM thread_details FINAL WHERE tenant = {tenant:String} AND name = 'archived' AND thread_id > {after:String}))
  AND (empty({words:Array(String)}) OR thread_id IN (
      SELECT thread_id FROM thread_details FINAL
      WHERE tenant = {tenant:String} AND name = 'title' AND thread_id > {after:String}
        AND arrayAll(w -> position(folded, w) > 0, {words:Array(String)})))
GROUP BY thread_id
HAVING toUnixTimestamp64Milli(thread_updated_at) >= {since:Int64}
   AND ({status:String} = '' OR last_status = {status:String})
   AND ({agent:String} = '' OR countIf(agent = {agent:String}) > 0)
ORDER BY thread_id
LIMIT {limit:UInt32}
SETTINGS optimize_aggregation_in_order = 1, max_threads = 1, max_block_size = 1024
