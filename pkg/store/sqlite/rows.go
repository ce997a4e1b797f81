package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

const runColumns = `version, record`

// scanRun reads runColumns.
func scanRun(ctx context.Context, scan func(...any) error) (store.Run, error) {
	var version int64
	var text []byte
	if err := scan(&version, &text); err != nil {
		return store.Run{}, err
	}
	if err := store.Metered(ctx, store.RowBytes, len(text)); err != nil {
		return store.Run{}, err
	}
	r, err := record.DecodeRun(text)
	if err != nil {
		return store.Run{}, fmt.Errorf("decoding row: %w", err)
	}
	return store.Run{Run: *r, Version: version}, nil
}

const insertRun = `
INSERT INTO runs (tenant, thread_id, run_id, version, deleted, status, agent, branch_id, spawned, message_count,
                  started_at, updated_at, raw_partition, raw_first, raw_next, record,
                  error_code, error_message, cancelled_by, asked, question, reply, resumed, recorded_at, trace_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, thread_id, run_id) DO NOTHING`

// addRun writes the row of a run, unless the store has one. It reports whether it wrote. The row depends only on the entry. A tombstone's
// has its key, version, partition and recorded_at, and zeros.
func (b *block) addRun(ctx context.Context, e store.Entry) (bool, error) {
	r := record.Run{StartedAt: time.UnixMilli(0), Raw: record.Raw{Partition: e.Partition}}
	var f store.Facts
	var text []byte
	if e.Run != nil {
		r = *e.Run
		// The ids come from the record's key, not from its value.
		r.Tenant, r.ThreadID, r.RunID = e.Tenant, e.ThreadID, e.RunID
		f = store.FactsOf(&r)
		r.Messages, r.InputMessages, r.State, r.Open = nil, nil, nil, nil
		var err error
		if text, err = record.EncodeRun(&r); err != nil {
			return false, fmt.Errorf("building row: %w", err)
		}
	}
	updatedAt, recordedAt := r.StartedAt, int64(0) // 0: unknown
	if r.EndedAt != nil {
		updatedAt = *r.EndedAt
	}
	if !e.At.IsZero() {
		recordedAt = e.At.UnixMilli()
	}
	res, err := b.exec(ctx, insertRun, e.Tenant, e.ThreadID, e.RunID, e.Version, e.Run == nil, string(r.Status), r.Agent, r.BranchID,
		r.Spawned, r.MessageCount, r.StartedAt.UnixMilli(), updatedAt.UnixMilli(), r.Raw.Partition, r.Raw.First, r.Raw.Next, string(text),
		f.ErrorCode, f.ErrorMessage, f.CancelledBy, f.Asked, f.Question, f.Reply, f.Resumed, recordedAt, r.TraceID())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// contentTables are the tables with contents of runs.
var contentTables = []string{"messages", "states", "tool_calls"}

const (
	insertMessage = `INSERT INTO messages (tenant, thread_id, run_id, input, idx, version, message_id, role, raw)
VALUES ` + messageValues
	messageValues = `(?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertState   = `INSERT INTO states (tenant, thread_id, run_id, version, state) VALUES (?, ?, ?, ?, ?)`
)

// messageRows limits the messages that one statement inserts. One statement per message takes twice as long for 10,000 messages.
const messageRows = 50

const (
	insertToolCall = `INSERT INTO tool_calls (tenant, thread_id, run_id, idx, version, tool_call_id, name, message_id, made, agent, model,
    started_at, argument_bytes, answered, result_bytes, failed, error, pending, called_at, duration_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// selectLineage reads whole records, so that the table needs few columns: the file is local.
const selectLineage = `SELECT ` + runColumns + `, error_code, error_message, cancelled_by, asked, question, reply, resumed FROM runs
WHERE tenant = ? AND thread_id = ? AND deleted = 0 ORDER BY raw_first, run_id`

const selectThread = `SELECT ` + runColumns + ` FROM runs
WHERE tenant = ? AND thread_id = ? AND deleted = 0 ORDER BY raw_first, run_id`

const selectRun = `SELECT ` + runColumns + ` FROM runs
WHERE tenant = ? AND thread_id = ? AND run_id = ? AND deleted = 0`

// contentsPart limits the ids in one statement.
const contentsPart = 500

// Rows of contents count if their version is that of the run's row. %s is the list of placeholders.
const (
	selectStates = `SELECT s.run_id, s.version, s.state FROM states s
JOIN runs r ON r.tenant = s.tenant AND r.thread_id = s.thread_id AND r.run_id = s.run_id AND r.version = s.version
WHERE s.tenant = ? AND s.thread_id = ? AND s.run_id IN (%s) AND r.deleted = 0 AND r.status <> 'running'`

	selectMessages = `SELECT m.run_id, m.input, m.message_id, m.role, m.raw FROM messages m
JOIN runs r ON r.tenant = m.tenant AND r.thread_id = m.thread_id AND r.run_id = m.run_id AND r.version = m.version
WHERE m.tenant = ? AND m.thread_id = ? AND m.run_id IN (%s) AND +m.input < 2 AND r.deleted = 0 AND r.status <> 'running'
ORDER BY m.run_id, m.input, m.idx`
)

// selectHolding reads the thread's range of the primary key. %s is the list of placeholders.
const selectHolding = `SELECT DISTINCT m.run_id, m.version FROM messages m
JOIN runs r ON r.tenant = m.tenant AND r.thread_id = m.thread_id AND r.run_id = m.run_id AND r.version = m.version
WHERE m.tenant = ? AND m.thread_id = ? AND m.message_id IN (%s) AND m.input = 0 AND r.deleted = 0 AND r.status <> 'running'`

// selectThreads reads the tenant's rows in the order of the index, up to the limit, and each thread's last run by index. (A join with
// the last runs would first copy all threads to a temporary table.)
const selectThreads = `
SELECT thread_id, count(*), sum(status = 'running'), count(DISTINCT branch_id),
       min(started_at), max(updated_at),
       (SELECT run_id ` + lastRun + `),
       (SELECT status ` + lastRun + `) AS last_status,
       (SELECT message_count ` + lastRun + `),
       coalesce((SELECT value ` + detail + ` AND name = 'title'), ''), EXISTS (SELECT 1 ` + detail + ` AND name = 'archived') AS archived
FROM runs t
WHERE tenant = :tenant AND deleted = 0 AND thread_id >= :from AND thread_id < :to AND thread_id <> :after
  AND (:words = '[]' OR EXISTS (SELECT 1 ` + detail + ` AND name = 'title'
       AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(folded, w.value) = 0)))
GROUP BY thread_id
HAVING max(updated_at) >= :since AND (:status = '' OR last_status = :status) AND (:agent = '' OR sum(agent = :agent) > 0)
   AND (:archived = 'all' OR archived = (:archived = 'yes'))
ORDER BY thread_id
LIMIT :limit`

// lastRun is the tip of thread t.
const lastRun = `FROM runs l WHERE l.tenant = :tenant AND l.thread_id = t.thread_id AND l.deleted = 0
        ORDER BY l.spawned, l.raw_first DESC, l.run_id DESC LIMIT 1`

// detail is a detail of thread t.
const detail = `FROM thread_details d WHERE d.tenant = :tenant AND d.thread_id = t.thread_id AND d.deleted = 0`

const selectDetails = `SELECT name, value FROM thread_details WHERE tenant = ? AND thread_id = ? AND deleted = 0`

// upsertDetail keeps the newest row of a detail. It replaces one of an equal version too, as a newer binary may build another row.
const upsertDetail = `
INSERT INTO thread_details (tenant, thread_id, name, version, deleted, value, folded) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, thread_id, name) DO UPDATE SET
    version = excluded.version, deleted = excluded.deleted, value = excluded.value, folded = excluded.folded
WHERE excluded.version >= version`

// selectInterrupted selects runs that ended with an interrupt, including those that were continued.
const selectInterrupted = `SELECT ` + runColumns + `, updated_at FROM runs
WHERE tenant = :tenant AND deleted = 0 AND status = 'interrupted' AND (:agent = '' OR agent = :agent)
  AND (updated_at, thread_id, run_id) > (:at, :thread, :run)
ORDER BY updated_at, thread_id, run_id
LIMIT :limit`

// selectLater selects the runs of a thread that started after an offset.
const selectLater = `SELECT ` + runColumns + ` FROM runs
WHERE tenant = ? AND thread_id = ? AND deleted = 0 AND raw_first > ?`

// upsertErasure keeps the newest erasure of a thread.
const upsertErasure = `
INSERT INTO erasures (tenant, thread_id, below, at_ms, version) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, thread_id) DO UPDATE SET
    below = excluded.below, at_ms = excluded.at_ms, version = excluded.version
WHERE excluded.version > version`

const selectErasure = `SELECT below, at_ms FROM erasures WHERE tenant = ? AND thread_id = ?`

// upsertPosition keeps the greatest position, whatever the order of writing.
const upsertPosition = `
INSERT INTO positions (partition, next, version) VALUES (?, ?, ?)
ON CONFLICT (partition) DO UPDATE SET
    next = max(next, excluded.next), version = max(version, excluded.version)`

// selectIndexedTo finds the tenant's partitions and their ends by index, instead of reading every row of the tenant, and merges the
// positions.
const selectIndexedTo = `
WITH RECURSIVE p (part) AS (
    SELECT min(raw_partition) FROM runs WHERE tenant = :tenant AND deleted = 0
    UNION ALL
    SELECT (SELECT min(raw_partition) FROM runs
            WHERE tenant = :tenant AND deleted = 0 AND raw_partition > p.part)
    FROM p WHERE p.part IS NOT NULL
)
SELECT part, max(next) FROM (
    SELECT p.part AS part, (SELECT max(raw_next) FROM runs
                            WHERE tenant = :tenant AND deleted = 0 AND raw_partition = p.part) AS next
    FROM p WHERE p.part IS NOT NULL
    UNION ALL
    SELECT partition, next FROM positions
)
GROUP BY part`
