-- Tombstones and erasures that the tables of another database lack.
SELECT tenant, thread_id, run_id, max(version), any(raw_partition), false, toInt64(0), toDateTime64(0, 3, 'UTC')
FROM runs
WHERE deleted = 1 AND (tenant, thread_id, run_id, version) NOT IN (SELECT tenant, thread_id, run_id, version FROM $other.runs WHERE deleted = 1)
GROUP BY tenant, thread_id, run_id
UNION ALL
SELECT tenant, thread_id, '', version, toInt32(0), true, below, at
FROM erasures FINAL
WHERE (tenant, thread_id, version) NOT IN (SELECT tenant, thread_id, version FROM $other.erasures)
