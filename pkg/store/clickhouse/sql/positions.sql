SELECT raw_partition, max(raw_next)
FROM positions
WHERE tenant = {tenant:String}
GROUP BY raw_partition
