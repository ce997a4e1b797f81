-- Tokens and money spent on the ends of branches that nobody went on from, by agent: of each branch that does not have the thread's
-- latest run, the runs behind the last one from which another branch parts. The money is that of runs that v_runs has a cost of; unpriced_tokens
-- are those of the others.
SELECT
    agent,
    count() AS runs,
    uniqExact((thread_id, branch_id)) AS branches,
    sum(total_tokens) AS tokens,
    round(sum(cost), 6) AS money,
    ifNull(sumIf(total_tokens, cost IS NULL), 0) AS unpriced_tokens
FROM
(
    SELECT
        thread_id, run.1 AS branch_id,
        groupArray((run.3, run.4, run.5, run.6, run.7)) AS of_branch,
        max(if(seen > 1, toInt64(run.3), -1)) AS last_fork
    FROM
    (
        SELECT
            thread_id,
            argMax(branch_id, (raw_first, run_id)) AS latest,
            groupUniqArrayIf(parent_run_id, run_id = branch_id) AS forks, -- the runs from which branches part
            groupArray((branch_id, run_id, depth, agent, total_tokens, cost, started_at)) AS of_thread
        FROM v_runs
        WHERE tenant = {tenant:String}
          AND thread_id IN ( -- those of one branch, which are most, waste nothing
              SELECT thread_id FROM runs WHERE tenant = {tenant:String} AND deleted = 0
              GROUP BY thread_id HAVING min(branch_id) != max(branch_id))
        GROUP BY thread_id, if(spawned, root_run_id, '') -- what was spawned is a line of its own
    )
    ARRAY JOIN
        of_thread AS run,
        arraySlice(arrayEnumerateUniq(arrayConcat(forks, of_thread.2)), length(forks) + 1) AS seen -- 2 of a run that is among forks
    WHERE branch_id != latest
    GROUP BY thread_id, branch_id
)
ARRAY JOIN
    of_branch.1 AS depth, of_branch.2 AS agent, of_branch.3 AS total_tokens, of_branch.4 AS cost, of_branch.5 AS started_at
WHERE depth > last_fork
  AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent
ORDER BY agent
