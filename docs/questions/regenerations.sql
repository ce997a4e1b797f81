-- How often people ask the same again (regenerated) or ask something else in its place (edited), by agent, model and week.
-- Runs of one parent are siblings; asked is equal where the new messages of their inputs are, whatever their ids.
SELECT
    agent,
    if(length(models) = 1, models[1], '') AS model,
    toStartOfWeek(started_at, 1) AS week,
    count() AS runs,
    countIf(same > 1) AS regenerated,
    countIf(same = 1 AND place > 1) AS edited
FROM
(
    SELECT
        agent, models, started_at,
        row_number() OVER (PARTITION BY thread_id, parent_run_id, asked ORDER BY raw_first, run_id) AS same,
        row_number() OVER (PARTITION BY thread_id, parent_run_id ORDER BY raw_first, run_id) AS place
    FROM v_runs
    WHERE tenant = {tenant:String} AND asked != ''
)
WHERE started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY agent, model, week
ORDER BY week, agent, model
