-- Tokens and money spent on the ends of branches that nobody went on from, by agent: of each branch that does not have the thread's
-- latest run, the runs behind the last one from which another branch parts.
WITH forks AS
(
    SELECT thread_id, parent_run_id
    FROM v_branches
    WHERE tenant = {tenant:String} AND parent_run_id != ''
)
SELECT
    agent,
    count() AS runs,
    uniqExact((thread_id, branch_id)) AS branches,
    sum(total_tokens) AS tokens,
    round(sum(cost), 6) AS money
FROM
(
    SELECT
        agent, thread_id, branch_id, total_tokens, cost, depth, started_at,
        max(if((thread_id, run_id) IN (SELECT thread_id, parent_run_id FROM forks), toInt64(depth), -1)) OVER (PARTITION BY thread_id, branch_id) AS last_fork,
        max((raw_first, run_id)) OVER (PARTITION BY thread_id, branch_id) AS last_of_branch,
        max((raw_first, run_id)) OVER (PARTITION BY thread_id) AS last_of_thread
    FROM v_runs
    WHERE tenant = {tenant:String}
)
WHERE last_of_branch != last_of_thread AND depth > last_fork
  AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
