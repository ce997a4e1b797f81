-- The tables with parts that hold deleted rows, but for those of which a removal is under way or was asked for lately.
SELECT DISTINCT table
FROM system.parts
WHERE database = {database:String} AND active AND has_lightweight_delete AND table IN {tables:Array(String)}
  AND table NOT IN (
    SELECT table
    FROM system.mutations
    WHERE database = {database:String} AND command LIKE '%APPLY DELETED MASK%' AND (NOT is_done OR create_time > now() - {seconds:Int64}))
ORDER BY table
