-- The heads of a thread's runs: few columns of one range of the primary key. Each column more is a file more in every part.
SELECT run_id, version, head
FROM runs FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String}
