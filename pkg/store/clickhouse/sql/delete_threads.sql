-- The lists have equal lengths: each thread comes with the greatest version that goes. What an indexer writes meanwhile stays.
DELETE FROM $table
WHERE tenant = {tenant:String} AND thread_id IN {threads:Array(String)}
  AND arrayExists((h, v) -> h = thread_id AND version <= v, {threads:Array(String)}, {versions:Array(UInt64)})
