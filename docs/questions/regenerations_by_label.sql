-- How often people ask the same again (regenerated) or ask something else in its place (edited), by label and week. A run counts for each of its labels; runs that ask
-- nothing are left out.
SELECT
    label.1 AS key,
    label.2 AS value,
    toStartOfWeek(started_at, 1) AS week,
    count() AS runs,
    countIf(same > 1) AS regenerated,
    countIf(same = 1 AND place > 1) AS edited
FROM
(
    SELECT labels, started_at, same, place
    FROM
    (
        SELECT arraySort(groupArray((raw_first, run_id, asked, arrayZip(mapKeys(labels), mapValues(labels)), started_at))) AS siblings
        FROM v_runs
        WHERE tenant = {tenant:String} AND asked != ''
        GROUP BY thread_id, parent_run_id, if(spawned_by = '', '', run_id) -- what was spawned is no sibling
    )
    ARRAY JOIN
        siblings.4 AS labels, siblings.5 AS started_at,
        arrayEnumerateUniq(siblings.3) AS same, -- from 1, among those that ask the same
        arrayEnumerate(siblings) AS place
)
ARRAY JOIN labels AS label
WHERE started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY key, value, week
ORDER BY week, key, value
