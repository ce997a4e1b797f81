-- Which versions of the named runs' contents count, and how many rows those have.
SELECT run_id, version, own_messages, input_messages
FROM runs FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND run_id IN {runs:Array(String)}
  AND status != 'running'
