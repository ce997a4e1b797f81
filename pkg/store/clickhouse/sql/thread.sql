-- The runs of a thread: one range of the primary key.
SELECT thread_id, run_id, version, head, record, own_messages, input_messages
FROM runs FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String}
