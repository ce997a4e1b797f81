package storetest

import (
	"testing"

	"github.com/skeinhq/skein/pkg/store"
)

// Store is all sides of the contract.
type Store interface {
	store.Writer
	store.Reader
	store.Migrator
	store.Expirer
}

// NewStore returns a store that is empty for the tenants that the suite uses, and migrated. What it
// opens it closes with tb.Cleanup; the suite never calls Close.
type NewStore func(tb testing.TB) Store

// A testCase gets a store of its own.
type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

func cases() []testCase {
	return []testCase{
		{"an empty store has nothing", emptyStore},
		{"migrating again changes nothing", migrateAgain},
		{"a sealed run comes back whole", sealedRun},
		{"writing a record twice changes nothing", writeTwice},
		{"an older record changes nothing", olderRecord},
		{"a running run has a row and no contents", runningRun},
		{"a run goes from running to sealed", runningToSealed},
		{"an abandoned run goes on and is sealed with fewer messages", abandonedToSealed},
		{"a sealed run without messages and state has contents", emptyContents},
		{"the key decides whose run it is", keyDecides},
		{"a tombstone deletes the run and what belongs to it", tombstone},
		{"a tombstone before its run keeps the run out", tombstoneFirst},
		{"a record newer than the tombstone is a new run", afterTombstone},
		{"any batches in any order give the same rows", converges},
		{"tenants do not see one another", tenants},
		{"ids are opaque", opaqueIDs},
		{"JSON text is kept as it came", exactText},
		{"large records", largeRecord},
		{"many runs in one answer", manyRuns},
		{"runs are found by their own messages", holding},
		{"runs come in the order of their first event", threadOrder},
		{"lineage is told by narrow columns", narrowLineage},
		{"threads are paged by id", threadPages},
		{"threads are filtered", threadFilters},
		{"a thread's summary", threadSummary},
		{"runs that wait for an answer", interrupted},
		{"a search finds what a plain filter finds", searches},
		{"a statistic measures what plain counting measures", statistics},
		{"a tool call counts where it was made first", callsMadeTwice},
		{"indexed positions", indexedTo},
		{"a position alone is seen by every tenant", positionAlone},
		{"positions and rows come to the greater", positionBesideRows},
		{"an older position changes nothing", olderPosition},
		{"a position stays after an erasure", positionAfterErasure},
		{"an erasure is kept, a newer one in its place", erasures},
		{"threads have titles and are archived", details},
		{"an erasure deletes the details of a thread", detailsErased},
		{"details expire with their thread", detailsExpire},
		{"threads expire whole, by their last run", expiry},
		{"the rows are of one topic", oneTopic},
		{"a cancelled call ends with an error", cancelled},
		{"a meter counts what is read, and ends a read", metered},
		{"readers see whole batches while a writer writes", concurrentReaders},
	}
}

// Run holds a store to the contract: to all of it.
func Run(t *testing.T, newStore NewStore) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t)) })
	}
}
