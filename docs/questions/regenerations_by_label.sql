-- How often people ask the same again (regenerated) or ask something else in its place (edited), by label and week. A run counts for each of its labels.
SELECT
    label.1 AS key,
    label.2 AS value,
    toStartOfWeek(started_at, 1) AS week,
    count() AS runs,
    countIf(same > 1) AS regenerated,
    countIf(same = 1 AND place > 1) AS edited
FROM
(
    SELECT
        started_at, arrayZip(mapKeys(labels), mapValues(labels)) AS all_labels,
        row_number() OVER (PARTITION BY thread_id, parent_run_id, asked ORDER BY raw_first, run_id) AS same,
        row_number() OVER (PARTITION BY thread_id, parent_run_id ORDER BY raw_first, run_id) AS place
    FROM v_runs
    WHERE tenant = {tenant:String} AND asked != ''
)
ARRAY JOIN all_labels AS label
WHERE started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY key, value, week
ORDER BY week, key, value
