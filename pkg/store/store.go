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

// ErrNotFound means that a tenant has no such thread or run. Another tenant may have it.
var ErrNotFound = errors.New("not found")

// ErrSchema means that the store's schema does not fit this binary. A retry does not help.
var ErrSchema = errors.New("the store's schema does not fit this binary")

// ErrOtherTopic means that the store's rows come from another skein.runs. Versions are offsets, and offsets of two topics cannot be
// compared.
var ErrOtherTopic = errors.New("the rows in the store are of another topic")

// ErrRefused means that the store refuses the data itself (bad data). A retry does not help. The error does not name the entry.
var ErrRefused = errors.New("the store refuses the data")

// Entry is one decoded record of skein.runs: a run (Run is set), a tombstone (it has a run's ids, and Run is nil), a thread's erasure
// (Erasure is set, and RunID is empty), a detail of a thread (Detail is set, and RunID is empty), or a progress record (Position is set,
// and all ids are empty).
type Entry struct {
	// Partition and Version are the record's partition and offset in skein.runs.
	Partition int32
	Version   int64
	// At is the record's timestamp in Kafka; zero if unknown.
	At time.Time
	// Tenant, ThreadID and RunID come from the record's key.
	Tenant, ThreadID, RunID string
	// Run is nil for a tombstone, which deletes the run with its contents.
	Run      *record.Run
	Erasure  *Erasure
	Detail   *record.Detail
	Position *Position
}

// Erasure means that the thread's events below an offset of skein.events are erased. The tombstones of their runs and of the thread's
// details have lower versions, so the store no longer has those rows.
type Erasure struct {
	Below int64
	// At is when the compactor wrote the erasure, in UTC with milliseconds.
	At time.Time
}

// Position means that all events of the entry's partition below Next are indexed, once all entries of the partition up to this one are
// written. It covers all tenants. An open run's row may be older: see that run's Raw.Next.
type Position struct{ Next int64 }

// Tombstone reports whether the entry deletes a run.
func (e Entry) Tombstone() bool {
	return e.Run == nil && e.Erasure == nil && e.Detail == nil && e.Position == nil
}

// Run is a row of the runs table: the run record without messages, input messages and state (Reader.Contents returns these) and without
// the open fold.
type Run struct {
	record.Run
	// Version is the offset of the record in skein.runs, on partition Run.Raw.Partition.
	Version int64
	// Facts are set by Reader.Lineage.
	Facts Facts
	// Counts are set by Reader.Thread and Reader.Lineage for runs with contents. With them Reader.Contents detects incomplete contents. They
	// are nil in stores that read contents in one snapshot.
	Counts *Counts
}

// Counts are how many messages a run's contents have.
type Counts struct {
	Messages      int `json:"messages"`
	InputMessages int `json:"inputMessages"`
}

// Content has the messages and state of a sealed or abandoned run.
type Content struct {
	Messages      []agui.Message
	InputMessages []agui.Message
	// State is nil if it is unchanged since the run's base.
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
	Details
}

// Details are what callers have set on a thread.
type Details struct {
	Title    string `json:"title,omitempty"` // empty if it has none
	Archived bool   `json:"archived,omitempty"`
}

// Set sets a detail, as a row of thread_details has it.
func (d *Details) Set(name, value string) {
	switch name {
	case record.DetailTitle:
		d.Title = value
	case record.DetailArchived:
		d.Archived = value != ""
	}
}

// ThreadQuery selects and pages threads.
type ThreadQuery struct {
	Prefix string // of the thread id
	Status record.Status
	Agent  string    // of any of its runs
	Since  time.Time // last updated at or after
	// Words must all be in the title, ignoring case as searches do.
	Words []string
	// Archived is search.ArchivedYes, search.ArchivedAll, or empty or search.ArchivedNo.
	Archived string
	Limit    int    // 1 to 1000
	After    string // cursor: the last thread id of the previous page
}

// InterruptQuery selects and pages runs that wait for an answer.
type InterruptQuery struct {
	Agent string // of the run
	Limit int    // 1 to 1000
	// After is the last run of the previous page; the zero value is the beginning.
	After InterruptCursor
}

// InterruptCursor is the position of a run in the order of InterruptQuery: the run's end, in milliseconds since 1970, then its ids.
type InterruptCursor struct {
	At              int64
	ThreadID, RunID string
}

// Writer is the indexer's interface.
type Writer interface {
	// Follow ties the store to a topic, by its id in Kafka. The first call on an empty store stores the id; a call with another id returns
	// ErrOtherTopic. Call it before Write.
	Follow(ctx context.Context, topicID string) error
	// Write makes the entries' rows durable before it returns. An entry changes nothing if the store has a newer row of the run, erasure or
	// detail of the thread, or position. An erasure becomes visible after the rows of its call, and a position after both. After an error
	// some entries may be written; the caller may repeat the call, unless the error is ErrRefused.
	Write(ctx context.Context, entries []Entry) error
	Close() error
}

// Expirer deletes threads after a tenant's retention.
type Expirer interface {
	// Expire deletes the rows, with the details, of each thread whose runs have all ended and were all recorded before the given time. It
	// returns the number of threads, and may leave some to the next call. The time of a record is Entry.At, as agents' timestamps may be in
	// wrong units or ahead; if Entry.At is unknown, it is the run's end. The records stay on skein.runs, so reading them again writes the
	// rows again, until the next call.
	Expire(ctx context.Context, tenant string, before time.Time) (threads int, err error)
	// Tenants returns the tenants with threads, and perhaps some that had threads before.
	Tenants(ctx context.Context) ([]string, error)
}

// Migrator creates and upgrades the tables. Stages do not call it: they wait until the schema fits.
type Migrator interface {
	// Migrate upgrades the schema to this binary's version. It leaves a newer schema unchanged; sqlite then returns ErrSchema.
	Migrate(ctx context.Context) error
}

// Reader is the query stage's interface. Each call reads one tenant's rows. The context's meter counts runs and contents (WithMeter).
type Reader interface {
	// Thread returns all runs of a thread, ordered by Raw.First. ErrNotFound if there is none.
	Thread(ctx context.Context, tenant, thread string) ([]Run, error)
	// Lineage returns the same runs as Thread, with Facts. Of each record it may return only the members of the head (headMembers).
	Lineage(ctx context.Context, tenant, thread string) ([]Run, error)
	// Run returns one run, or ErrNotFound.
	Run(ctx context.Context, tenant, thread, run string) (Run, error)
	// Contents returns the messages and states of runs that Thread or Lineage has returned, by run id. It leaves out runs without
	// contents: running ones, and those whose contents in the store are incomplete or of another version.
	Contents(ctx context.Context, tenant, thread string, runs []Run) (map[string]Content, error)
	// Holding returns the sealed and abandoned runs of a thread that have an own message with one of these ids. It maps their ids to the
	// versions of their records.
	Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error)
	// Threads returns a page of threads, ordered by thread id, and the cursor of the next page ("" at the end).
	Threads(ctx context.Context, tenant string, q ThreadQuery) ([]Thread, string, error)
	// Details returns the details of a thread; the zero value if it has none. Threads without runs may have some.
	Details(ctx context.Context, tenant, thread string) (Details, error)
	// Interrupted returns a page of the runs that ended with an interrupt and were not continued, the oldest end first, and the
	// cursor of the next page (nil at the end).
	Interrupted(ctx context.Context, tenant string, q InterruptQuery) ([]Run, *InterruptCursor, error)
	// Search returns a page of the runs that a filter selects, in the query's order, or search.ErrTooMuch beyond its bounds.
	Search(ctx context.Context, tenant string, q search.Query) (search.Page, error)
	// Statistics returns measures of the runs that a filter selects, by group, or search.ErrTooMuch beyond its bounds.
	Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error)
	// Erasure returns the latest erasure of a thread, or ErrNotFound.
	Erasure(ctx context.Context, tenant, thread string) (Erasure, error)
	// Purged reports whether the store's files have only ids of the data that the thread's latest erasure erased. A store may hide erased
	// rows first and remove them later.
	Purged(ctx context.Context, tenant, thread string) (bool, error)
	// IndexedTo returns, by partition of skein.events, the offset below which all events are indexed: the greater of the partition's
	// position and the greatest Raw.Next of the tenant's rows.
	IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error)
	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
}
