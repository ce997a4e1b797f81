SELECT thread_id, run_id, version, head, record
FROM runs FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND run_id = {run:String}
