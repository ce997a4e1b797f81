SELECT run_id, version, state
FROM states FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND run_id IN {runs:Array(String)}
