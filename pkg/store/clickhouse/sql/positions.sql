-- The tenant's own, and those that hold for every tenant.
SELECT raw_partition, max(raw_next)
FROM positions
WHERE tenant IN ({tenant:String}, '')
GROUP BY raw_partition
