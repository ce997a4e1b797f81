-- The lists have equal lengths: each thread comes with the greatest version that goes. What an indexer writes meanwhile stays.
DELETE FROM $table
WHERE tenant = {tenant:String} AND thread_id IN [$threads]
  AND version <= transform(thread_id, [$threads], CAST([$versions], 'Array(UInt64)'), toUInt64(0))
