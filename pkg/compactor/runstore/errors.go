package runstore

import "errors"

// ErrFailed is returned if a local store cannot be read or written: the disk is full, or fails. Other calls may never
// return, so the process should exit. After a restart, here or elsewhere, it continues from what was committed.
var ErrFailed = errors.New("the local stores cannot be used any more")

// ErrOtherEvents is returned if skein.events was created again and skein.runs was not. Every event below an offset in a
// run's record would then seem known, and be dropped.
var ErrOtherEvents = errors.New("skein.events was deleted and made again, and the topics that are made of it were not: " +
	"their records speak of offsets of a log that is gone. If they were mirrored from another cluster, see skein topics adopt. " +
	"Else go on with a fresh topic set (another --topic-prefix), or delete skein.runs, skein.snapshots and skein.dead-letters too and make " +
	"all again with skein topics create; either way with an empty lineage store")

// ErrMissing is returned if a known run has no record or metadata.
var ErrMissing = errors.New("a run's record is missing")

// errContradiction is returned if a store has contents that no compactor writes, or lacks a record that its metadata
// lists. The process treats that as damage. If the contradiction comes back after the store was rebuilt from
// skein.runs, the code that wrote the contents is wrong.
var errContradiction = errors.New("its contents contradict each other (if that happens again after a rebuild, it is a bug of Skein: please report it)")

var (
	// errCut is returned for a value that lacks bytes.
	errCut = errors.New("its value is cut")
	// errLocked is returned if a store is open already, usually in another process.
	errLocked  = errors.New("it is in use")
	errStuck   = errors.New("a read or write has not returned")
	errDamaged = errors.New("it is damaged; the next start rebuilds it")
)
