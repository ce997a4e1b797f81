package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
)

// ErrNotFound says that a tenant has no such thread or run. A run of another tenant is not found.
var ErrNotFound = errors.New("not found")

// ErrSchema says that the store's schema does not fit this binary. Waiting does not mend it.
var ErrSchema = errors.New("the store's schema does not fit this binary")

// ErrOtherTopic says that the store's rows are of another skein.runs. Which of two rows is the newer one, only
// offsets of one log tell.
var ErrOtherTopic = errors.New("the rows in the store are of another topic")

// ErrRefused says that the store does not take what it was given, however often it is tried: the data is the reason, not
// the weather. Of several entries it does not say which one.
var ErrRefused = errors.New("the store refuses the data")

// Entry is one record of skein.runs as the indexer hands it over: of a run (Run is set), of a run's
// deletion (a tombstone: it names a run, and Run is nil), of a thread's erasure (Erasure is set; it names
// no run), or of how far its partition is decided (Position is set; it names no tenant, thread or run).
type Entry struct {
	// Partition and Version are the record's partition and offset in skein.runs.
	Partition int32
	Version   int64
	// At is the record's time in Kafka; zero where it is unknown.
	At time.Time
	// Tenant, ThreadID and RunID come from the record's key. A position has none, an erasure no RunID.
	Tenant, ThreadID, RunID string
	// Run is nil for a tombstone: the run and all that belongs to it is deleted.
	Run *record.Run
	// Erasure is nil but for an erasure.
	Erasure *Erasure
	// Position is nil but for a position.
	Position *Position
}

// Erasure says that events of the thread below an offset of skein.events are erased, and, since the
// tombstones of its runs have lesser versions, that nothing that was made of them is left in the store.
type Erasure struct {
	Below int64
	// At is when the compactor wrote it, in UTC, to the millisecond.
	At time.Time
}

// Position says that all events of the entry's partition below Next are indexed, once this entry and
// those of the partition with a lesser version are. It speaks of the events of every tenant. How far an
// open run is told, only its own row says.
type Position struct{ Next int64 }

// Tombstone reports whether the entry deletes a run.
func (e Entry) Tombstone() bool { return e.Run == nil && e.Erasure == nil && e.Position == nil }

// Run is a row of the runs table: the run record without its messages, input messages, state and
// open fold, which Reader.Contents gives.
type Run struct {
	record.Run
	// Version is the offset of the record in skein.runs, on partition Run.Raw.Partition.
	Version int64
	// Facts are set by Reader.Lineage.
	Facts Facts
	// Counts are set by Reader.Thread and Reader.Lineage, of a run that has contents: Reader.Contents tells by them whether those are whole. A store
	// that reads contents at one moment leaves them out.
	Counts *Counts
}

// Counts are how many messages a run's contents have.
type Counts struct {
	Messages      int `json:"messages"`
	InputMessages int `json:"inputMessages"`
}

// Content is what a sealed or abandoned run's record holds beside its row.
type Content struct {
	Messages      []agui.Message
	InputMessages []agui.Message
	// State is nil where the record has none (unchanged against its base).
	State json.RawMessage
}

// Thread is the summary of one thread.
type Thread struct {
	ThreadID  string    `json:"threadId"`
	Runs      int       `json:"runs"`
	OpenRuns  int       `json:"openRuns"`
	Branches  int       `json:"branches"`
	Messages  int       `json:"messages"` // in the history of the run that started last
	StartedAt time.Time `json:"startedAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	LastRunID string    `json:"lastRunId"` // the run with the latest start
	Status    string    `json:"status"`    // of that run
}

// ThreadQuery selects and pages threads.
type ThreadQuery struct {
	Prefix string // of the thread id
	Status record.Status
	Agent  string    // of any of its runs
	Since  time.Time // last updated at or after
	Limit  int       // 1 to 1000
	After  string    // cursor: the thread id that the last page ended with; ordered by thread id
}

// InterruptQuery selects and pages runs that wait for an answer.
type InterruptQuery struct {
	Agent string // of the run
	Limit int    // 1 to 1000
	// After is the last run of the page before; its zero value is the beginning.
	After InterruptCursor
}

// InterruptCursor is a run that waits for an answer, by its place among them: the time of its end, in milliseconds since 1970, and its ids.
type InterruptCursor struct {
	At              int64
	ThreadID, RunID string
}

// Writer is the indexer's side.
type Writer interface {
	// Follow ties the store to a skein.runs, by the id that the brokers have given to the topic. The first one
	// that a store is told is the one that its rows are of; any other is ErrOtherTopic, until the store has been
	// made anew. It comes before Write.
	Follow(ctx context.Context, topicID string) error
	// Write makes the entries' rows durable before it returns. An entry older than what the
	// store has for its run changes nothing, nor does an older erasure of its thread, or a position
	// that is not beyond the one it has. Erasures are not seen before the rows of the entries they
	// come with, and positions not before either. Either all entries are written or an error is
	// returned and the call may be repeated; ErrRefused says that this does not help.
	Write(ctx context.Context, entries []Entry) error
	Close() error
}

// Expirer deletes what is older than a tenant's retention.
type Expirer interface {
	// Expire deletes the rows of a tenant's threads of which every run has ended and none was recorded at or after a time (Entry.At; where that is unknown, by the
	// time of its end), and returns how many threads that were; a store may leave some to the next call. The clocks of agents do not count: one that tells seconds
	// for milliseconds would have every thread deleted, and one that is ahead none. The records stay on skein.runs: who reads them again has the
	// rows again, until the next call.
	Expire(ctx context.Context, tenant string, before time.Time) (threads int, err error)
	// Tenants returns the tenants that have threads, and perhaps some that had.
	Tenants(ctx context.Context) ([]string, error)
}

// Migrator makes the tables. Stages do not: they wait until somebody has.
type Migrator interface {
	// Migrate brings the schema to this binary's version; ErrSchema where it is a newer one's.
	Migrate(ctx context.Context) error
}

// Reader is the query stage's side. All calls are bound to one tenant. Runs and contents are counted by the context's meter (WithMeter).
type Reader interface {
	// Thread returns all runs of a thread, ordered by Raw.First. ErrNotFound if there is none.
	Thread(ctx context.Context, tenant, thread string) ([]Run, error)
	// Lineage returns the runs of a thread as Thread does, but of each only its head (headMembers), and Facts.
	Lineage(ctx context.Context, tenant, thread string) ([]Run, error)
	// Run returns one run, or ErrNotFound.
	Run(ctx context.Context, tenant, thread, run string) (Run, error)
	// Contents returns the messages and states of runs of a thread, as Thread or Lineage gave them. A run that is not in the answer has none: it is
	// running, or its contents are of another version by now, or some of another.
	Contents(ctx context.Context, tenant, thread string, runs []Run) (map[string]Content, error)
	// Holding returns the runs of a thread, sealed or abandoned, that have a message of one of these ids as their own, with
	// the versions of their records.
	Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error)
	// Threads returns a page of threads, ordered by thread id, and the cursor of the next
	// page ("" at the end).
	Threads(ctx context.Context, tenant string, q ThreadQuery) ([]Thread, string, error)
	// Interrupted returns a page of the runs that ended with an interrupt and that no run goes on from, the longest waiting first, and
	// the cursor of the next page (nil at the end).
	Interrupted(ctx context.Context, tenant string, q InterruptQuery) ([]Run, *InterruptCursor, error)
	// Search returns a page of the runs that a filter selects, in the order of the query. Beyond the query's bounds it is search.ErrTooMuch.
	Search(ctx context.Context, tenant string, q search.Query) (search.Page, error)
	// Statistics returns groups of the runs that a filter selects, and their measures. Beyond the bounds it is search.ErrTooMuch.
	Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error)
	// Erasure returns the latest erasure of a thread, or ErrNotFound where nothing of it was erased.
	Erasure(ctx context.Context, tenant, thread string) (Erasure, error)
	// Purged reports whether the store's files hold nothing any more of what the thread's latest erasure took back, beside ids. A store may hide erased rows
	// at once and remove them later.
	Purged(ctx context.Context, tenant, thread string) (bool, error)
	// IndexedTo returns, per partition of skein.events, the offset up to which events are
	// indexed: the greater of the partition's position, which holds for every tenant, and the
	// greatest Raw.Next of the tenant's rows.
	IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error)
	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
}
