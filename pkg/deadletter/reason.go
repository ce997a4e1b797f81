package deadletter

// The reasons of dead letters.
const (
	Malformed      = "malformed"
	NoRun          = "no-run"
	AfterTerminal  = "after-terminal"
	WrongPartition = "wrong-partition"
	// TooLarge means that the value exceeds kafka.MaxValueBytes.
	TooLarge = "too-large"
	// BadKey means that the key is not tenant/thread, escaped as schemas/ describes.
	BadKey = "bad-key"
	// BadHeaders means that a Skein header cannot be parsed, such as one with a malformed number.
	BadHeaders = "bad-headers"
	// UnknownKind means that the header skein-kind is unknown, or not allowed on skein.events.
	UnknownKind = "unknown-kind"
	// NotFromIngest means that the compactor requires ingest's signature (record.HeaderMAC), and the record has no right one.
	NotFromIngest = "not-from-ingest"
	// Refused means that the lineage store refuses the rows of a run record. Only the indexer's dead letters have this reason. They are run
	// records, and their position is that of the run's first event.
	Refused = "refused"
)

// Reasons lists the reasons of the compactor's dead letters, which are records of skein.events.
func Reasons() []string {
	return []string{Malformed, NoRun, AfterTerminal, WrongPartition, TooLarge, BadKey, BadHeaders, UnknownKind, NotFromIngest}
}

// AllReasons lists the reasons of the compactor's and the indexer's dead letters.
func AllReasons() []string { return append(Reasons(), Refused) }

// Chance tells whether a retry can help.
type Chance string

// The chances.
const (
	// ChanceNow means that the record may be folded now.
	ChanceNow Chance = "now"
	// ChanceAfterChange means that the record fails again unless the settings or the version of Skein have changed.
	ChanceAfterChange Chance = "after-change"
	// ChanceNever means that the record always fails, or would be folded into a wrong run.
	ChanceNever Chance = "never"
)

// ChanceOf returns whether a retry of a dead letter with this reason can help; ChanceNever for the unknown reasons of later versions.
func ChanceOf(reason string) Chance {
	switch reason {
	// NoRun: the thread may have an open run now. WrongPartition: a retry uses the thread's own partition.
	case NoRun, WrongPartition:
		return ChanceNow
	case Malformed, TooLarge, BadHeaders, UnknownKind, NotFromIngest:
		return ChanceAfterChange
	default:
		// AfterTerminal: the event could join a later run with the same id. Refused: the record is not an event but a run record; an operator can
		// make the indexer read skein.runs again.
		return ChanceNever
	}
}
