-- The details of threads: ranges of the primary key.
SELECT thread_id, name, value
FROM thread_details FINAL
WHERE tenant = {tenant:String} AND thread_id IN {threads:Array(String)}
