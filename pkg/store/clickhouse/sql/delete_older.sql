-- The lists have equal lengths: each run comes with the version of its tombstone. What is older goes,
-- what was written after stays. The first two conditions are for the primary key.
DELETE FROM $table
WHERE tenant IN {tenants:Array(String)} AND thread_id IN {threads:Array(String)}
  AND arrayExists((t, h, r, v) -> t = tenant AND h = thread_id AND r = run_id AND version < v,
                  {tenants:Array(String)}, {threads:Array(String)}, {runs:Array(String)}, {versions:Array(UInt64)})
