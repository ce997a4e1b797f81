-- Threads that come back: of those that began on a day, how many have a run so many days later. Threads that began before the range are left out,
-- and to know them all days before its end are read.
SELECT first_day, dateDiff('day', first_day, day) AS days_later, count() AS threads
FROM
(
    SELECT thread_id, toDate(min(started_at)) AS first_day, arrayJoin(groupUniqArray(toDate(started_at))) AS day
    FROM v_runs_by_time
    WHERE tenant = {tenant:String} AND started_at < {to:DateTime64(3, 'UTC')}
    GROUP BY thread_id
    HAVING min(started_at) >= {from:DateTime64(3, 'UTC')}
)
GROUP BY first_day, days_later
ORDER BY first_day, days_later
