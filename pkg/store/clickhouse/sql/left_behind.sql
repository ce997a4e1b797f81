-- Rows of runs_by_time that are older than a tombstone of their run: a copy by a migration, or an indexer of an older version beside it, may
-- have brought them behind the deletion. The latest tombstone of each run, some at a time.
SELECT d.tenant, d.thread_id, d.run_id, max(d.version)
FROM runs_by_time AS t
INNER JOIN (SELECT tenant, thread_id, run_id, version FROM runs WHERE deleted = 1) AS d
    ON d.tenant = t.tenant AND d.thread_id = t.thread_id AND d.run_id = t.run_id
WHERE t.version < d.version
GROUP BY d.tenant, d.thread_id, d.run_id
LIMIT 1000
