-- The runs of a thread: one range of the primary key.
SELECT version, record
FROM runs FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String}
ORDER BY raw_first, run_id
