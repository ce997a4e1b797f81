-- The lists have equal lengths: each thread comes with the version of its erasure. What is older goes, but for tombstones; what was written after
-- stays. Two conditions are for the primary key.
DELETE FROM thread_details
WHERE deleted = 0 AND tenant IN {tenants:Array(String)} AND thread_id IN {threads:Array(String)}
  AND arrayExists((t, h, v) -> t = tenant AND h = thread_id AND version < v,
                  {tenants:Array(String)}, {threads:Array(String)}, {versions:Array(UInt64)})
