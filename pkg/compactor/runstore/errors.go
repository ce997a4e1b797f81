package runstore

import "errors"

// ErrFailed says that a local store cannot be read or written: the disk is full, or fails. Calls that are under way may never return,
// so the process should exit. Started again, here or elsewhere, it continues from what was committed.
var ErrFailed = errors.New("the local stores cannot be used any more")

// ErrOtherEvents says that skein.events was created again, and skein.runs was not: each event below an offset that a run's record names
// would be taken for known, and dropped.
var ErrOtherEvents = errors.New("skein.events was deleted and made again, and the topics that are made of it were not: " +
	"their records speak of offsets of a log that is gone. Go on with a fresh topic set (another --topic-prefix), or delete skein.runs, " +
	"skein.snapshots and skein.dead-letters too and make all again with skein topics create; either way with an empty lineage store")

// ErrMissing says that a run is known but its record or metadata is not there.
var ErrMissing = errors.New("a run's record is missing")

// errContradiction says that a store has contents that no compactor writes, or lacks a record that its metadata lists. One process takes
// that for damage. If a store that was rebuilt from skein.runs shows it again, the code that wrote it is wrong.
var errContradiction = errors.New("its contents contradict each other (if that happens again after a rebuild, it is a bug of Skein: please report it)")

var (
	// errCut says that a value does not have all its bytes.
	errCut = errors.New("its value is cut")
	// errLocked says that a store is open already, usually in another process.
	errLocked  = errors.New("it is in use")
	errStuck   = errors.New("a read or write has not returned")
	errDamaged = errors.New("it is damaged; the next start rebuilds it")
)
