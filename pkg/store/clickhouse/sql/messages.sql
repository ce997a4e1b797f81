-- In the order of the sorting key: each list comes in its own order.
SELECT run_id, version, input, message_id, role, raw
FROM messages FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND run_id IN {runs:Array(String)} AND input < 2
ORDER BY run_id, input, idx
