-- Where a run stands among the others of its thread: a view, since other runs tell. v_runs has no such columns, as each question to it would read
-- the thread's other runs.

CREATE VIEW IF NOT EXISTS v_places /* on cluster */ AS
SELECT
    p.tenant AS tenant, p.thread_id AS thread_id, p.run_id AS run_id, max(p.parent) AS parent_run_id,
    countIf(p.child) AS children, toBool(countIf(p.child) = 0) AS is_tip,
    max(p.place_of) AS place, max(p.among) AS siblings, toBool(max(p.place_of) < max(p.among)) AS superseded, max(p.newest) AS newest_sibling
FROM
(
    SELECT
        r.tenant AS tenant, r.thread_id AS thread_id, r.run_id AS run_id, r.parent_run_id AS parent, toBool(0) AS child,
        row_number() OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id ORDER BY r.raw_first, r.run_id) AS place_of,
        count() OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id) AS among,
        tupleElement(max((r.raw_first, r.run_id)) OVER (PARTITION BY r.tenant, r.thread_id, r.parent_run_id), 2) AS newest
    FROM (SELECT tenant, thread_id, run_id, parent_run_id, raw_first FROM runs FINAL) AS r
    UNION ALL
    SELECT
        c.tenant AS tenant, c.thread_id AS thread_id, c.parent_run_id AS run_id, '' AS parent, toBool(1) AS child,
        toUInt64(0) AS place_of, toUInt64(0) AS among, '' AS newest
    FROM (SELECT tenant, thread_id, parent_run_id FROM runs FINAL WHERE parent_run_id != '') AS c
) AS p
GROUP BY p.tenant, p.thread_id, p.run_id
HAVING countIf(NOT p.child) > 0;

ALTER TABLE v_places /* on cluster */
    COMMENT COLUMN IF EXISTS tenant 'the tenant',
    COMMENT COLUMN IF EXISTS thread_id 'the thread',
    COMMENT COLUMN IF EXISTS run_id 'the run',
    COMMENT COLUMN IF EXISTS parent_run_id 'the run that this one goes on from; empty of a root',
    COMMENT COLUMN IF EXISTS children 'runs that go on from this one',
    COMMENT COLUMN IF EXISTS is_tip 'no run goes on from this one',
    COMMENT COLUMN IF EXISTS place 'place among the runs of one parent, by their first event, from 1; roots of a thread are siblings',
    COMMENT COLUMN IF EXISTS siblings 'runs of one parent, with this one',
    COMMENT COLUMN IF EXISTS superseded 'a later run of the same parent took its place: it was asked again, or something else was',
    COMMENT COLUMN IF EXISTS newest_sibling 'the latest run of the same parent; this one unless superseded';

ALTER TABLE v_runs /* on cluster */ COMMENT COLUMN IF EXISTS cost
    'what the tokens cost by the table prices; input tokens from a cache count at the full price; NULL where the run names no model or one that has no price';
