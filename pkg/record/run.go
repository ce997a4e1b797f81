package record

import (
	"encoding/json"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// Status is where a run stands.
type Status string

// The statuses of a run. All but StatusRunning are terminal; all terminal ones but
// StatusAbandoned are sealed by an event on skein.events, of the agent or of Skein's proxy (Run.Synthetic), and change no more. An abandoned run changes no more where it is closed, or its record was cut
// (Run.Closed, Run.Truncated).
const (
	StatusRunning     Status = "running"
	StatusFinished    Status = "finished"
	StatusError       Status = "error"
	StatusInterrupted Status = "interrupted"
	StatusCancelled   Status = "cancelled"
	StatusAbandoned   Status = "abandoned"
)

// Sealed reports whether a terminal event on skein.events ended the run, so that its record is final.
func (s Status) Sealed() bool { return s != StatusRunning && s != StatusAbandoned && s != "" }

// ParentBy says how a run's parent was found.
type ParentBy string

const (
	// ParentExplicit: the run or its input named a run of the same thread.
	ParentExplicit ParentBy = "explicit"
	// ParentContent: the input's messages continue that run's history.
	ParentContent ParentBy = "content"
	// ParentLatest: there was no input, or a normalised one; the run of the thread that ended last is taken.
	ParentLatest ParentBy = "latest"
	// ParentNone: the run is a root.
	ParentNone ParentBy = "none"
)

// Lineage is where a run stands among those of its thread. Base is not part of it.
type Lineage struct {
	// ParentRunID is a run of the same thread, or empty for a root.
	ParentRunID string   `json:"parentRunId,omitempty"`
	ParentBy    ParentBy `json:"parentBy"`
	// SpawnedBy is a parentRunId that names no run of this thread at the run's first event:
	// what AG-UI 1.0 calls the run that spawned this one, or a parent that came late.
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
	// BranchID is the id of the branch's first run, RootRunID of the tree's.
	BranchID  string `json:"branchId"`
	RootRunID string `json:"rootRunId"`
	// Depth is 0 for a root.
	Depth int `json:"depth"`
}

// InputForm says how an input tells the conversation.
type InputForm string

// InputNormalised is the form in which AG-UI serialises inputs: messages that are in the history already are left out, and
// those that stand there come behind it (lineage.Normalised). InputMessages and InputLayout give the whole list.
const InputNormalised InputForm = "normalised"

// Run is the run record: the compact form of one run, one per run on skein.runs. It holds all
// that is needed to restore, index, resume and audit the run. Encode and Decode are its codec.
type Run struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	// RunID is unique in its thread. A run id that the agent uses again after the run was
	// sealed gets "~2", "~3", …; ClientRunID is then the id as the agent gave it.
	RunID       string `json:"runId"`
	ClientRunID string `json:"clientRunId,omitempty"`

	Lineage

	Status Status `json:"status"`
	// Agent is who produced the run, as the first of its records says that names one (Headers.Agent); empty where none does.
	Agent string `json:"agent,omitempty"`
	// Labels are what the run's records say of it (Headers.Labels): of a key the first value, and the first MaxLabels keys.
	Labels map[string]string `json:"labels,omitempty"`
	// Started is the RUN_STARTED event without its input, if there was one.
	Started json.RawMessage `json:"started,omitempty"`
	// Input is the RunAgentInput without its messages; InputLayout names those over the
	// history of Base (activity messages aside) and InputMessages.
	Input         json.RawMessage `json:"input,omitempty"`
	InputLayout   agui.Layout     `json:"inputLayout,omitempty"`
	InputMessages []agui.Message  `json:"inputMessages,omitempty"`
	// InputForm is InputNormalised where the input left out what is in the history; empty where it is whole.
	InputForm InputForm `json:"inputForm,omitempty"`
	// Rewrote says how the input departs from the parent's history, as that was when the run began; nil
	// where it goes on from it. Package lineage makes the words.
	Rewrote []string `json:"rewrote,omitempty"`

	// Base is the sealed run whose history this run's messages are encoded relative to, or empty.
	Base string `json:"base,omitempty"`
	// Messages are the run's own messages: added or changed by it, in order.
	Messages []agui.Message `json:"messages,omitempty"`
	// Layout builds the history from Base's history and Messages. Empty means: each own
	// message replaces the message of that id in the base, or is appended.
	Layout agui.Layout `json:"layout,omitempty"`
	// MessageCount is the number of messages in the history at the run's end.
	MessageCount int `json:"messageCount"`
	// HistoryKey is a hash over the ids of the history's messages, activity messages aside: the
	// parent of a later run is found by it. Package lineage makes it; empty for an empty history.
	HistoryKey string `json:"historyKey,omitempty"`
	// State at the end, where it differs from Base's state ({} without a base).
	State json.RawMessage `json:"state,omitempty"`
	// SinceSnapshot is the number of bytes that the branch's runs have added since its
	// conversation was last written whole to skein.snapshots; 0 where this run's end was.
	SinceSnapshot int64 `json:"sinceSnapshot,omitempty"`

	// Kept are the families of events that the run keeps, decided at its first event.
	Kept agui.Families `json:"kept,omitzero"`
	// Events are the kept events, as they came.
	Events []json.RawMessage `json:"events,omitempty"`
	// Terminal is the terminal event as it came, or one that is not the agent's (Synthetic): of an abandoned run Skein made it, and
	// it is on no topic; else Skein's proxy wrote it to skein.events (Headers.Synthetic).
	Terminal  json.RawMessage `json:"terminal,omitempty"`
	Synthetic bool            `json:"synthetic,omitempty"`
	// Closed: the run was abandoned, and that is its end: nothing behind Raw.Next is its own. Open tells as much to who
	// has the whole record.
	Closed bool `json:"closed,omitempty"`

	// Interrupts are open at the run's end (AG-UI Interrupt objects), as are
	// PendingToolCalls (their ids). Resumes are the input's resume entries.
	Interrupts       []json.RawMessage `json:"interrupts,omitempty"`
	PendingToolCalls agui.Strings      `json:"pendingToolCalls,omitempty"`
	Resumes          []json.RawMessage `json:"resumes,omitempty"`

	Stats Stats `json:"stats"`

	// StartedAt and EndedAt are the events' timestamps, else the Kafka records'; of an abandoned run EndedAt is when its last record
	// came (Open.LastAt).
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`

	Raw Raw `json:"raw"`

	// InputSHA256 is over the input's bytes as they came; empty without an input.
	InputSHA256 string `json:"inputSha256,omitempty"`
	FoldVersion int    `json:"foldVersion"`

	Truncated bool `json:"truncated,omitempty"`
	// Cut is there where contents were cut while the run went on. Truncated comes with its last record.
	Cut     *Cut `json:"cut,omitempty"`
	RawLost bool `json:"rawLost,omitempty"`

	// Open is what a fold needs to go on from this record; only while the run is not sealed.
	Open *Open `json:"open,omitempty"`
}

// Cut says where a run's contents end that were cut while it went on, as open runs held more memory than they may: what came from there
// on is counted and hashed, but in no content.
type Cut struct {
	// Events is how many of Raw.Events the contents are made of.
	Events int64 `json:"events"`
	// Next is Raw.Next at that moment, which references name that were made then.
	Next int64 `json:"next"`
}

// Whole reports whether the record has all contents of the run's events.
func (r *Run) Whole() bool { return !r.Truncated && r.Cut == nil }

// InputOnly reports whether nothing of the run has come but its input: be it that it waits for its first event, or
// that it was abandoned without one. Its fold was never begun.
func (r *Run) InputOnly() bool { return r.Raw.Events == 0 && !r.Status.Sealed() }

// HasWholeInput reports whether the history starts from an input, not from the parent's.
func (r *Run) HasWholeInput() bool { return r.Input != nil && r.InputForm != InputNormalised }

// MaxRanges is how many sub-ranges of offsets a record names at most.
const MaxRanges = 64

// Raw is where a run's events lie in skein.events, and the proof of them.
type Raw struct {
	Partition int32 `json:"partition"`
	// First is the offset of the run's first record, Next the one after its last.
	First int64 `json:"first"`
	Next  int64 `json:"next"`
	// Ranges are up to MaxRanges half-open offset ranges that hold every record of the run.
	Ranges [][2]int64 `json:"ranges"`
	// Events is the number of folded events: dropped repeats and synthetic ends excluded.
	Events int64 `json:"events"`
	// SHA256 is over each folded event's bytes and a line feed, in order.
	SHA256 string `json:"sha256"`
	// NextSeq is the producer's next seq header; -1 where it sends none.
	NextSeq int64 `json:"nextSeq"`
}

// Stats are a run's statistics.
type Stats struct {
	Events           agui.StringMap[int64]      `json:"events"`     // by event type
	EventBytes       agui.StringMap[int64]      `json:"eventBytes"` // by event type
	Messages         int                        `json:"messages"`   // own messages
	ToolCalls        agui.StringMap[int64]      `json:"toolCalls,omitempty"`
	Usage            agui.StringMap[TokenUsage] `json:"usage,omitempty"`     // by model, "" where none is named
	Anomalies        map[string]int64           `json:"anomalies,omitempty"` // by rule
	TimeToFirstToken *int64                     `json:"timeToFirstTokenMs,omitempty"`
	Duration         *int64                     `json:"durationMs,omitempty"`
	// ToolCallTimes are, by a tool call's id, the milliseconds from StartedAt to its first event, and to its result once that came. The first 1,000
	// calls whose ids have 64 KiB together are in it. Nil: the run made no call on the stream, was cut, or has a
	// record at the limit (Fit).
	ToolCallTimes agui.StringMap[[]int64] `json:"toolCallTimesMs,omitzero"`
}

// TokenUsage is AG-UI's TokenUsage, summed over a run's entries of one model.
type TokenUsage struct {
	InputTokens           int64 `json:"inputTokens,omitempty"`
	OutputTokens          int64 `json:"outputTokens,omitempty"`
	TotalTokens           int64 `json:"totalTokens,omitempty"`
	ReasoningTokens       int64 `json:"reasoningTokens,omitempty"`
	CachedInputTokens     int64 `json:"cachedInputTokens,omitempty"`
	CacheWriteInputTokens int64 `json:"cacheWriteInputTokens,omitempty"`
}

// Open is what lies open in a run, so that its fold goes on in another process with the same result.
type Open struct {
	// Fold is compact's own checkpoint.
	Fold json.RawMessage `json:"fold"`
	// Hash is the marshalled state of the running SHA-256.
	Hash []byte `json:"hash"`
	// MissingSeqs are ranges of the producer's numbers below Raw.NextSeq, half-open and rising: every number that has not come is in one of
	// them. Nil where none is missing.
	MissingSeqs [][2]int64 `json:"missingSeqs,omitempty"`
	// LastAt is when the run's latest Kafka record came, in stream time (the latest time of any record of the partition by then): its
	// silence is counted from there.
	LastAt time.Time `json:"lastAt"`
	// Pending says that an input has come but no event yet: parent, branch, depth, root and base
	// are decided at the first event, and what the record says of them is preliminary.
	Pending bool `json:"pending,omitempty"`
	// Placed says that a first event has come all the same, of which the record holds nothing, as it would be over the
	// limit: parent, branch, depth, root and base are decided. Without a base, messages and state are what the run takes
	// over from a parent that had not ended. That event and what follows lie at Raw.Next or behind.
	Placed bool `json:"placed,omitempty"`
}
