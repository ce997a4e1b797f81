-- The deepest threads, and how wide they are: the most runs that go on from one. Of threads that have a run in the range all runs count.
SELECT thread_id, max(deep) AS deepest, max(children) AS widest, sum(children) AS runs
FROM
(
    SELECT thread_id, parent_run_id, max(depth) AS deep, count() AS children
    FROM v_runs
    WHERE tenant = {tenant:String} AND thread_id IN (
        SELECT thread_id FROM v_runs_by_time
        WHERE tenant = {tenant:String} AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')})
    GROUP BY thread_id, parent_run_id, if(spawned_by = '', '', run_id) -- what was spawned is no sibling
)
GROUP BY thread_id
ORDER BY deepest DESC, widest DESC, thread_id
LIMIT 20
