-- How often people ask the same again (regenerated) or ask something else in its place (edited), by agent, model and week.
-- Runs of one parent are siblings, which are numbered here in the order of their first events; asked is equal where the new messages of their
-- inputs are, whatever their ids. Runs that ask nothing, such as those that resume, are left out. A run of no model, or of several, has an empty one.
SELECT
    agent, model, toStartOfWeek(started_at, 1) AS week,
    count() AS runs,
    countIf(same > 1) AS regenerated,
    countIf(same = 1 AND place > 1) AS edited
FROM
(
    SELECT
        arraySort(groupArray((raw_first, run_id, asked, agent, if(arrayUniq(models) = 1, models[1], ''), started_at))) AS siblings
    FROM v_runs
    WHERE tenant = {tenant:String} AND asked != ''
    GROUP BY thread_id, parent_run_id, if(spawned_by = '', '', run_id) -- what was spawned is no sibling
)
ARRAY JOIN
    siblings.4 AS agent, siblings.5 AS model, siblings.6 AS started_at,
    arrayEnumerateUniq(siblings.3) AS same, -- from 1, among those that ask the same
    arrayEnumerate(siblings) AS place
WHERE started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent, model, week
ORDER BY week, agent, model
