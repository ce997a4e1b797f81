package deadletter

// The reasons of dead letters.
const (
	Malformed      = "malformed"
	NoRun          = "no-run"
	AfterTerminal  = "after-terminal"
	WrongPartition = "wrong-partition"
	// TooLarge: the value is over the record limit.
	TooLarge = "too-large"
	// BadKey: the key is not tenant/thread, escaped as schemas/ describes.
	BadKey = "bad-key"
	// BadHeaders: a Skein header that cannot be read, such as a number that is none.
	BadHeaders = "bad-headers"
	// UnknownKind: a skein-kind that is not known, or does not belong on skein.events.
	UnknownKind = "unknown-kind"
	// Refused: the lineage store does not take the rows of a run record. The indexer's dead letters are run records, and
	// their position is that of the run's first event.
	Refused = "refused"
)

// Reasons lists the reasons of the compactor's dead letters, which are records of skein.events.
func Reasons() []string {
	return []string{Malformed, NoRun, AfterTerminal, WrongPartition, TooLarge, BadKey, BadHeaders, UnknownKind}
}

// AllReasons lists the reasons of the indexer's dead letters, too.
func AllReasons() []string { return append(Reasons(), Refused) }

// Chance says whether a retry can help.
type Chance string

// The chances.
const (
	// ChanceNow: the same record may be taken this time.
	ChanceNow Chance = "now"
	// ChanceAfterChange: it is refused again unless settings or the version of Skein have changed.
	ChanceAfterChange Chance = "after-change"
	// ChanceNever: it is refused for ever, or would come to stand where it does not belong.
	ChanceNever Chance = "never"
)

// ChanceOf says whether the retry of a dead letter with this reason can help. One of a reason that is not
// known here has none: it was written by a later version, which may know better.
func ChanceOf(reason string) Chance {
	switch reason {
	// NoRun: a run may be open in the thread by now, and takes it. WrongPartition: a retry chooses the
	// thread's own.
	case NoRun, WrongPartition:
		return ChanceNow
	case Malformed, TooLarge, BadHeaders, UnknownKind:
		return ChanceAfterChange
	default:
		// AfterTerminal: a run of that id that was started since would take in what is not its own. Refused: it is no event; its
		// record is on skein.runs, which an operator has read again.
		return ChanceNever
	}
}
