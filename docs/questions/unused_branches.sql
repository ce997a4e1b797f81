-- Tokens and money spent on the ends of branches that nobody went on from, by agent: of each branch that does not have the thread's
-- latest run, the runs behind the last one from which another branch parts. The money is that of runs whose models all have a price; unpriced_tokens
-- are those of the others.
WITH branches AS
(
    SELECT thread_id, branch_id, parent_run_id, is_latest
    FROM v_branches
    WHERE tenant = {tenant:String}
)
SELECT
    agent,
    count() AS runs,
    uniqExact((thread_id, branch_id)) AS branches,
    sum(total_tokens) AS tokens,
    round(sum(cost), 6) AS money,
    sumIf(total_tokens, cost IS NULL) AS unpriced_tokens
FROM
(
    SELECT
        thread_id, branch_id, groupArray((agent, total_tokens, cost, depth, started_at)) AS of_branch,
        max(if((thread_id, run_id) IN (SELECT thread_id, parent_run_id FROM branches WHERE parent_run_id != ''), toInt64(depth), -1)) AS last_fork
    FROM v_runs
    WHERE tenant = {tenant:String} AND (thread_id, branch_id) IN (SELECT thread_id, branch_id FROM branches WHERE NOT is_latest)
    GROUP BY thread_id, branch_id
)
ARRAY JOIN
    of_branch.1 AS agent, of_branch.2 AS total_tokens, of_branch.3 AS cost, of_branch.4 AS depth, of_branch.5 AS started_at
WHERE depth > last_fork
  AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
