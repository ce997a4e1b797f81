package compactor

import "errors"

// ErrFenced says that another process took over this instance's transactional or instance id.
// Going on would fight with it: the process should exit. Brokers may say the same of one that has stood still for
// longer than its transaction may last (8 s); started anew it goes on from what was committed.
var ErrFenced = errors.New("another process has this instance's ids, or this one stood still inside a transaction")

// ErrStore says that a local store cannot be read or written: the disk is full, or fails. Nothing that is under way there may
// be waited for, so the process should exit; started anew, here or elsewhere, it goes on from what was committed.
var ErrStore = errors.New("the local stores cannot be used any more")

// errOtherEvents says that skein.events was made again, and skein.runs was not: each event below an offset
// that a run's record speaks of would be taken for known, and dropped.
var errOtherEvents = errors.New("skein.events was deleted and made again, and the topics that are made of it were not: " +
	"their records speak of offsets of a log that is gone. Go on with a fresh topic set (another --topic-prefix), or delete skein.runs, " +
	"skein.snapshots and skein.dead-letters too and make all again with skein topics create; either way with an empty lineage store")

// errContradiction says that a local store has what nobody wrote, or has not what it says it has. It is damaged then, as far as
// one process can tell; where another one, made of skein.runs, says the same, the code that wrote it is wrong.
var errContradiction = errors.New("it contradicts itself (a store that was made anew and says this again is a fault of Skein's: please report it)")

// errMissing says that a run is known but its record is not there; errCut, that a value has not all its bytes.
var (
	errMissing = errors.New("a run's record is missing")
	errCut     = errors.New("its value is cut")
)
