package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// Status is a run's status.
type Status string

// All statuses but StatusRunning are terminal. A terminal event on skein.events, by the agent or by Skein's proxy
// (Run.Synthetic), sets any of these but StatusAbandoned and seals the run: its history never changes again, and its record
// changes once at most, if the agent reports a failure after its RUN_FINISHED (Run.LateError). An abandoned run never changes
// again if it is closed or its record was cut (Run.Closed, Run.Truncated).
const (
	StatusRunning     Status = "running"
	StatusFinished    Status = "finished"
	StatusError       Status = "error"
	StatusInterrupted Status = "interrupted"
	StatusCancelled   Status = "cancelled"
	StatusAbandoned   Status = "abandoned"
)

// Sealed reports whether a terminal event on skein.events ended the run, so that no later event changes its history.
func (s Status) Sealed() bool { return s != StatusRunning && s != StatusAbandoned && s != "" }

// ParentBy is how a run's parent was found.
type ParentBy string

const (
	// ParentExplicit: the run or its input named a run of the same thread.
	ParentExplicit ParentBy = "explicit"
	// ParentContent: the input's messages continue that run's history.
	ParentContent ParentBy = "content"
	// ParentLatest: there was no input, or a normalised one; the parent is the run of the thread that ended last.
	ParentLatest ParentBy = "latest"
	// ParentNone: the run is a root.
	ParentNone ParentBy = "none"
)

// Lineage is a run's place among the runs of its thread, without Base.
type Lineage struct {
	// ParentRunID is a run of the same thread, or empty for a root.
	ParentRunID string   `json:"parentRunId,omitempty"`
	ParentBy    ParentBy `json:"parentBy"`
	// SpawnedBy is the parent that the run named, if the thread had no run of that id yet, or if that run was open and the whole
	// input shares no message with it. It spawned this run, as AG-UI defines it, or came later.
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
	// Spawned means that a run of this thread spawned the first run of the tree.
	Spawned bool `json:"spawned,omitempty"`
	// BranchID is the id of the branch's first run, RootRunID that of the tree's.
	BranchID  string `json:"branchId"`
	RootRunID string `json:"rootRunId"`
	// Depth is 0 for a root.
	Depth int `json:"depth"`
}

// InputForm is the form of an input's messages.
type InputForm string

// InputNormalised is the form in which AG-UI serialises inputs: it leaves out messages that the history already has,
// and its messages follow the history (lineage.Normalised). InputMessages and InputLayout restore the whole list.
const InputNormalised InputForm = "normalised"

// Run is the run record: the compact form of one run, one per run on skein.runs. It has everything that is needed to
// restore, index, resume and audit the run. EncodeRun and DecodeRun are its codec.
type Run struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	// RunID is unique in its thread. A client run id that is used again after its run was sealed gets "~2", "~3", …;
	// ClientRunID then has the id without the suffix.
	RunID       string `json:"runId"`
	ClientRunID string `json:"clientRunId,omitempty"`

	Lineage

	Status Status `json:"status"`
	// Agent is the run's producer, from the first of its records that names one (Headers.Agent); empty if none does.
	Agent string `json:"agent,omitempty"`
	// Labels are those of the run's records (Headers.Labels): the first value of each key, and the first MaxLabels keys.
	Labels map[string]string `json:"labels,omitempty"`
	// Traceparent is the trace context of the first of the run's records that has one (Headers.Traceparent); empty if none has.
	Traceparent string `json:"traceparent,omitempty"`
	// Started is the RUN_STARTED event without its input, if there was one.
	Started json.RawMessage `json:"started,omitempty"`
	// Input is the RunAgentInput without its messages; InputLayout builds them from the history of Base (without
	// activities) and InputMessages.
	Input         json.RawMessage `json:"input,omitempty"`
	InputLayout   agui.Layout     `json:"inputLayout,omitempty"`
	InputMessages []agui.Message  `json:"inputMessages,omitempty"`
	// InputForm is InputNormalised if the input leaves out what the history has; empty if it is whole.
	InputForm InputForm `json:"inputForm,omitempty"`
	// Rewrote is how the input differs from the parent's history at the run's start (lineage.Rewrite); nil if it continues
	// that history.
	Rewrote []string `json:"rewrote,omitempty"`

	// Base is the sealed run whose history this run's messages are encoded relative to, or empty.
	Base string `json:"base,omitempty"`
	// Messages are the run's own messages, which it added or changed, in order.
	Messages []agui.Message `json:"messages,omitempty"`
	// Layout builds the history from Base's history and Messages. If it is empty, each own message replaces the message of
	// that id in the base, or is appended.
	Layout agui.Layout `json:"layout,omitempty"`
	// MessageCount is the number of messages in the history at the run's end.
	MessageCount int `json:"messageCount"`
	// HistoryKey has hashes over ids and contents of the history's messages, by which the parent of a later run
	// is found (lineage.HistoryKey); empty for an empty history.
	HistoryKey string `json:"historyKey,omitempty"`
	// State is the state at the end, if it differs from Base's ({} without a base).
	State json.RawMessage `json:"state,omitempty"`
	// SinceSnapshot is the number of bytes that the branch's runs have added since its conversation was last due to be written
	// whole to skein.snapshots; 0 if that was at this run's end.
	SinceSnapshot int64 `json:"sinceSnapshot,omitempty"`

	// Kept are the families of events that the run keeps, decided at its first event.
	Kept agui.Families `json:"kept,omitzero"`
	// Events are the kept events, as they came.
	Events []json.RawMessage `json:"events,omitempty"`
	// Terminal is the agent's terminal event as received, or a synthetic one (Synthetic). Skein makes the synthetic event of
	// an abandoned run, which is on no topic; Skein's proxy wrote any other to skein.events (Headers.Synthetic).
	// The fold makes that of a run whose end is malformed (fold.Decode).
	Terminal  json.RawMessage `json:"terminal,omitempty"`
	Synthetic bool            `json:"synthetic,omitempty"`
	// LateError is the agent's RUN_ERROR after its RUN_FINISHED, which Terminal then is; nil if none came.
	LateError *LateError `json:"lateError,omitempty"`
	// FirstMalformed is why the first malformed record of the run was not folded; empty if there is none.
	FirstMalformed string `json:"firstMalformed,omitempty"`
	// Closed is true if the run was abandoned for good: no event after Raw.Next belongs to it. Readers of the whole record
	// see the same in Open.
	Closed bool `json:"closed,omitempty"`

	// Interrupts are open at the run's end (AG-UI Interrupt objects), as are
	// PendingToolCalls (their ids). Resumes are the input's resume entries.
	Interrupts       []json.RawMessage `json:"interrupts,omitempty"`
	PendingToolCalls agui.Strings      `json:"pendingToolCalls,omitempty"`
	Resumes          []json.RawMessage `json:"resumes,omitempty"`

	Stats Stats `json:"stats"`

	// StartedAt and EndedAt are the events' timestamps, else the Kafka records'. EndedAt of an abandoned run is the time
	// of its last record (Open.LastAt).
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`

	Raw Raw `json:"raw"`

	// InputSHA256 is over the input's bytes as received; empty without an input.
	InputSHA256 string `json:"inputSha256,omitempty"`
	FoldVersion int    `json:"foldVersion"`

	Truncated bool `json:"truncated,omitempty"`
	// Cut is set if contents were cut while the run was open. Truncated is set with its last record.
	Cut     *Cut `json:"cut,omitempty"`
	RawLost bool `json:"rawLost,omitempty"`

	// Open is what a fold needs to continue from this record; only while the run is not sealed.
	Open *Open `json:"open,omitempty"`
}

// Cut is where the contents of a run end if they were cut while the run was open, because open runs held too much memory.
// Later events are counted and hashed, but are in no content.
type Cut struct {
	// Events is how many of Raw.Events are in the contents.
	Events int64 `json:"events"`
	// Next is Raw.Next at the time of the cut; references have it.
	Next int64 `json:"next"`
}

// LateError is a RUN_ERROR that the agent sent after its RUN_FINISHED: the run failed, although its terminal event says otherwise.
type LateError struct {
	// Offset is the event's offset in Raw.Partition. No range of Raw contains it.
	Offset int64 `json:"offset"`
	// Event is the event as received, or a part of it if the record would exceed its limit.
	Event json.RawMessage `json:"event"`
	// Interrupts were open until then. A resume that names one still finds the run.
	Interrupts []json.RawMessage `json:"interrupts,omitempty"`
}

// FailLate records a late error. What the run left, and the proof of it, stay; only an interrupt waits for no answer any more.
func (r *Run) FailLate(e LateError) {
	e.Interrupts = r.Interrupts
	r.LateError, r.Status, r.Interrupts = &e, StatusError, nil
}

// Is reports whether an event is the late error.
func (e *LateError) Is(ev *agui.Event) bool {
	if ev == nil || ev.Type != agui.RunError {
		return false
	}
	body := Compacted(ev.Body)
	cut := agui.Lookup(agui.Lookup(e.Event, "skeinTruncated"), "sha256")
	return bytes.Equal(body, Compacted(e.Event)) || string(cut) == `"`+SHA256(body)+`"`
}

// LastEnd returns the event that says how the run ended: its late error if it has one, else Terminal.
func (r *Run) LastEnd() json.RawMessage {
	if r.LateError != nil {
		return r.LateError.Event
	}
	return r.Terminal
}

// Stopped reports whether Skein's proxy ended the run on request.
func (r *Run) Stopped() bool {
	return r.Synthetic && agui.Lookup(agui.Lookup(r.Terminal, "metadata"), MetadataStop) != nil
}

// Places returns the offset ranges that contain every record of the run, its late error included.
func (r *Run) Places() [][2]int64 {
	if r.LateError == nil {
		return r.Raw.Ranges
	}
	return append(slices.Clone(r.Raw.Ranges), [2]int64{r.LateError.Offset, r.LateError.Offset + 1})
}

// Whole reports whether the record has all contents of the run's events.
func (r *Run) Whole() bool { return !r.Truncated && r.Cut == nil }

// InputOnly reports whether only the run's input has come: it waits for its first event, or was abandoned without one.
// Its fold has not begun.
func (r *Run) InputOnly() bool { return r.Raw.Events == 0 && !r.Status.Sealed() }

// HasWholeInput reports whether the history starts from an input, not from the parent's.
func (r *Run) HasWholeInput() bool { return r.Input != nil && r.InputForm != InputNormalised }

// MaxRanges is the largest number of offset ranges in a record.
const MaxRanges = 64

// Raw is the place of a run's events in skein.events, and their proof.
type Raw struct {
	Partition int32 `json:"partition"`
	// First is the offset of the run's first record, Next the one after its last.
	First int64 `json:"first"`
	Next  int64 `json:"next"`
	// Ranges are up to MaxRanges half-open offset ranges that contain every record of the run.
	Ranges [][2]int64 `json:"ranges"`
	// Events is the number of folded events, without dropped repeats and synthetic ends.
	Events int64 `json:"events"`
	// SHA256 is over each folded event's bytes and a line feed, in order.
	SHA256 string `json:"sha256"`
	// NextSeq is the producer's next seq header; -1 if it sends none.
	NextSeq int64 `json:"nextSeq"`
}

// Has reports whether an offset is in the ranges.
func (r Raw) Has(offset int64) bool {
	return slices.ContainsFunc(r.Ranges, func(in [2]int64) bool { return in[0] <= offset && offset < in[1] })
}

// Stats are a run's statistics.
type Stats struct {
	Events           agui.StringMap[int64] `json:"events"`     // by event type
	EventBytes       agui.StringMap[int64] `json:"eventBytes"` // by event type
	Messages         int                   `json:"messages"`   // own messages
	ToolCalls        agui.StringMap[int64] `json:"toolCalls,omitempty"`
	Usage            []TokenUsage          `json:"usage,omitempty"`     // sorted by provider and model, each pair once
	Anomalies        map[string]int64      `json:"anomalies,omitempty"` // by rule
	TimeToFirstToken *int64                `json:"timeToFirstTokenMs,omitempty"`
	Duration         *int64                `json:"durationMs,omitempty"`
	// ToolCallTimes maps a tool call's id to the milliseconds from StartedAt to the call's first event and, once it has come,
	// to its result. It has the first calls, up to 1,000 and up to 64 KiB of ids. It is nil if the run made no call on the
	// stream, was cut, or has a record at the limit (Fit).
	ToolCallTimes agui.StringMap[[]int64] `json:"toolCallTimesMs,omitzero"`
}

// TokenUsage is AG-UI's TokenUsage of one provider and model. A count that was not reported is nil, which is not zero. The last three
// counts are parts of the first two. There is no totalTokens: see Total.
type TokenUsage struct {
	Provider              agui.String `json:"provider,omitempty"`
	Model                 agui.String `json:"model,omitempty"`
	InputTokens           *int64      `json:"inputTokens,omitempty"`
	OutputTokens          *int64      `json:"outputTokens,omitempty"`
	ReasoningTokens       *int64      `json:"reasoningTokens,omitempty"`
	CachedInputTokens     *int64      `json:"cachedInputTokens,omitempty"`
	CacheWriteInputTokens *int64      `json:"cacheWriteInputTokens,omitempty"`
}

// Total returns input plus output tokens, or nil if either was not reported. AG-UI defines totalTokens so; what an agent writes as
// totalTokens may count differently.
func (u *TokenUsage) Total() *int64 { return both(u.InputTokens, u.OutputTokens) }

// Add adds another entry of the same provider and model. Input and output are nil if either entry lacks them.
func (u *TokenUsage) Add(o TokenUsage) {
	u.InputTokens, u.OutputTokens = both(u.InputTokens, o.InputTokens), both(u.OutputTokens, o.OutputTokens)
	u.ReasoningTokens = AddTokens(u.ReasoningTokens, o.ReasoningTokens)
	u.CachedInputTokens = AddTokens(u.CachedInputTokens, o.CachedInputTokens)
	u.CacheWriteInputTokens = AddTokens(u.CacheWriteInputTokens, o.CacheWriteInputTokens)
}

// both adds two counts; nil if either is.
func both(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// AddTokens adds what was reported of two counts; nil if neither was.
func AddTokens(a, b *int64) *int64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return both(a, b)
}

// Open is the state of an open run from which another process continues its fold with the same result.
type Open struct {
	// Fold is compact's own checkpoint.
	Fold json.RawMessage `json:"fold"`
	// Hash is the marshalled state of the running SHA-256.
	Hash []byte `json:"hash"`
	// MissingSeqs are half-open, rising ranges of the producer's numbers below Raw.NextSeq that contain every number that
	// has not come; nil if none is missing.
	MissingSeqs [][2]int64 `json:"missingSeqs,omitempty"`
	// LastAt is the stream time (the latest time of any record of the partition so far) of the run's latest Kafka record: the
	// run has been idle since then.
	LastAt time.Time `json:"lastAt"`
	// Pending is true if an input has come but no event: parent, branch, depth, root and base are decided at the first
	// event, and those in the record are preliminary.
	Pending bool `json:"pending,omitempty"`
	// Placed is true if a first event has come that the record lacks, since it would exceed the limit: parent, branch, depth,
	// root and base are decided. Without a base, messages and state are those of a parent that had not ended. That event and
	// later ones are at or after Raw.Next.
	Placed bool `json:"placed,omitempty"`
}
