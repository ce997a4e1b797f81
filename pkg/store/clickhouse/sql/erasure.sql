SELECT below, at
FROM erasures FINAL
WHERE tenant = {tenant:String} AND thread_id = {thread:String}
