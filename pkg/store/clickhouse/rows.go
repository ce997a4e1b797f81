package clickhouse

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column/orderedmap"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// runRow is a row of the table runs. A tombstone's row has its key, version, partition and RecordedAt, and zeros. Its maps are in
// the order of keys, and never nil: the driver writes a plain map in random order, and the server keeps that order, so two rebuilds
// of one record would differ.
type runRow struct {
	Tenant   string `ch:"tenant"`
	ThreadID string `ch:"thread_id"`
	RunID    string `ch:"run_id"`
	Version  uint64 `ch:"version"`
	Deleted  uint8  `ch:"deleted"`

	ClientRunID string `ch:"client_run_id"`
	ParentRunID string `ch:"parent_run_id"`
	ParentBy    string `ch:"parent_by"`
	SpawnedBy   string `ch:"spawned_by"`
	Spawned     bool   `ch:"spawned"`
	BranchID    string `ch:"branch_id"`
	RootRunID   string `ch:"root_run_id"`
	Depth       uint32 `ch:"depth"`

	Status           string                          `ch:"status"`
	Agent            string                          `ch:"agent"`
	Labels           *orderedmap.Map[string, string] `ch:"labels"`
	TraceID          string                          `ch:"trace_id"`
	Synthetic        bool                            `ch:"synthetic"`
	Truncated        bool                            `ch:"truncated"`
	RawLost          bool                            `ch:"raw_lost"`
	StartedAt        time.Time                       `ch:"started_at"`
	EndedAt          *time.Time                      `ch:"ended_at"`
	UpdatedAt        time.Time                       `ch:"updated_at"`
	RecordedAt       time.Time                       `ch:"recorded_at"`
	TimeToFirstToken *int64                          `ch:"time_to_first_token_ms"`
	Duration         *int64                          `ch:"duration_ms"`

	RawPartition int32 `ch:"raw_partition"`
	RawFirst     int64 `ch:"raw_first"`
	RawNext      int64 `ch:"raw_next"`
	RawEvents    int64 `ch:"raw_events"`

	MessageCount     uint32 `ch:"message_count"`
	OwnMessages      uint32 `ch:"own_messages"`
	InputMessages    uint32 `ch:"input_messages"`
	OpenInterrupts   uint32 `ch:"open_interrupts"`
	PendingToolCalls uint32 `ch:"pending_tool_calls"`
	Resumes          uint32 `ch:"resumes"`

	Events        *orderedmap.Map[string, int64] `ch:"events"`
	EventBytes    *orderedmap.Map[string, int64] `ch:"event_bytes"`
	EventBytesSum int64                          `ch:"event_bytes_sum"`
	ToolCalls     *orderedmap.Map[string, int64] `ch:"tool_calls"`
	ToolCallsSum  int64                          `ch:"tool_calls_sum"`
	Anomalies     *orderedmap.Map[string, int64] `ch:"anomalies"`
	AnomaliesSum  int64                          `ch:"anomalies_sum"`
	FoldVersion   uint32                         `ch:"fold_version"`

	// The entries of usage, in their order.
	Models                []string `ch:"models"`
	ModelProviders        []string `ch:"model_providers"`
	ModelInputTokens      []*int64 `ch:"model_input_tokens"`
	ModelOutputTokens     []*int64 `ch:"model_output_tokens"`
	ModelReasoningTokens  []*int64 `ch:"model_reasoning_tokens"`
	ModelCachedTokens     []*int64 `ch:"model_cached_tokens"`
	ModelCacheWriteTokens []*int64 `ch:"model_cache_write_tokens"`

	ErrorCode    string   `ch:"error_code"`
	ErrorMessage string   `ch:"error_message"`
	CancelledBy  string   `ch:"cancelled_by"`
	Rewrote      []string `ch:"rewrote"`
	Asked        string   `ch:"asked"`

	// Head and Record are the record without ids, contents and open fold (store.EncodeRow).
	Head   string `ch:"head"`
	Record string `ch:"record"`
}

// newRunRow builds the row of an entry. The row depends only on the entry.
func newRunRow(e store.Entry) (*runRow, error) {
	epoch := time.Unix(0, 0).UTC()
	row := &runRow{
		Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID, Version: uint64(e.Version),
		RawPartition: e.Partition, StartedAt: epoch, UpdatedAt: epoch, RecordedAt: epoch,
	}
	if s := e.At.Unix(); s > 0 && s <= math.MaxUint32 { // the range of DateTime; other times count as unknown
		row.RecordedAt = e.At
	}
	if e.Run == nil {
		row.Deleted, row.Labels = 1, new(orderedmap.Map[string, string])
		row.count(record.Stats{})
		return row, nil
	}
	r := e.Run
	facts := store.FactsOf(r)
	head, rest, err := store.EncodeRow(r, facts)
	if err != nil {
		return nil, fmt.Errorf("building row: %w", err)
	}
	row.Head, row.Record = string(head), string(rest)
	row.ErrorCode, row.ErrorMessage, row.CancelledBy = facts.ErrorCode, facts.ErrorMessage, facts.CancelledBy
	row.Rewrote, row.Asked = r.Rewrote, facts.Asked

	row.ClientRunID, row.ParentRunID, row.SpawnedBy, row.Spawned = r.ClientRunID, r.ParentRunID, string(r.SpawnedBy), r.Spawned
	row.ParentBy = string(r.ParentBy)
	row.BranchID, row.RootRunID, row.Depth = r.BranchID, r.RootRunID, uint32(r.Depth)

	row.Status = string(r.Status)
	row.Agent, row.Labels, row.TraceID = r.Agent, orderedmap.FromMap(r.Labels), r.TraceID()
	row.Synthetic, row.Truncated, row.RawLost = r.Synthetic, r.Truncated, r.RawLost
	row.StartedAt, row.UpdatedAt = timesOf(r)
	if r.EndedAt != nil {
		end := row.UpdatedAt
		row.EndedAt = &end
	}
	row.TimeToFirstToken, row.Duration = r.Stats.TimeToFirstToken, r.Stats.Duration

	row.RawPartition, row.RawFirst, row.RawNext = r.Raw.Partition, r.Raw.First, r.Raw.Next
	row.RawEvents = r.Raw.Events

	row.MessageCount, row.OwnMessages, row.InputMessages = uint32(r.MessageCount), uint32(len(r.Messages)), uint32(len(r.InputMessages))
	row.OpenInterrupts = uint32(len(r.Interrupts))
	row.PendingToolCalls = uint32(len(r.PendingToolCalls))
	row.Resumes = uint32(len(r.Resumes))
	row.FoldVersion = uint32(r.FoldVersion)
	row.count(r.Stats)
	return row, nil
}

// timesOf returns the start of a run and its last update: its end, or its start if it has no end.
func timesOf(r *record.Run) (startedAt, updatedAt time.Time) {
	startedAt = clamp(r.StartedAt)
	if r.EndedAt != nil {
		return startedAt, clamp(*r.EndedAt)
	}
	return startedAt, startedAt
}

// count fills in the statistics.
func (r *runRow) count(s record.Stats) {
	r.Events, r.EventBytes, r.EventBytesSum = orderedmap.FromMap(s.Events), orderedmap.FromMap(s.EventBytes), sum(s.EventBytes)
	r.ToolCalls, r.ToolCallsSum = orderedmap.FromMap(s.ToolCalls), sum(s.ToolCalls)
	r.Anomalies, r.AnomaliesSum = orderedmap.FromMap(s.Anomalies), sum(s.Anomalies)
	for _, u := range s.Usage {
		r.Models, r.ModelProviders = append(r.Models, string(u.Model)), append(r.ModelProviders, string(u.Provider))
		r.ModelInputTokens = append(r.ModelInputTokens, u.InputTokens)
		r.ModelOutputTokens = append(r.ModelOutputTokens, u.OutputTokens)
		r.ModelReasoningTokens = append(r.ModelReasoningTokens, u.ReasoningTokens)
		r.ModelCachedTokens = append(r.ModelCachedTokens, u.CachedInputTokens)
		r.ModelCacheWriteTokens = append(r.ModelCacheWriteTokens, u.CacheWriteInputTokens)
	}
}

func sum(counts map[string]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// The range of DateTime64 in the driver, which counts nanoseconds since 1970 in 64 bits. Agents do send the year 50000.
var (
	firstTime = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2261, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
)

// clamp returns the nearest time that the database can store.
func clamp(t time.Time) time.Time { return record.ClampTime(t, firstTime, lastTime) }

// messageRow is a row of messages.
type messageRow struct {
	Tenant    string `ch:"tenant"`
	ThreadID  string `ch:"thread_id"`
	RunID     string `ch:"run_id"`
	Input     uint8  `ch:"input"`
	Idx       uint32 `ch:"idx"`
	Version   uint64 `ch:"version"`
	MessageID string `ch:"message_id"`
	Role      string `ch:"role"`
	// Raw shares the record's memory: copies would take a third of a block's memory.
	Raw    json.RawMessage `ch:"raw"`
	Folded string          `ch:"folded"`
}

// messageRows appends the rows of a list of messages.
func messageRows(rows []*messageRow, e store.Entry, input uint8, messages []agui.Message) []*messageRow {
	for i, m := range messages {
		rows = append(rows, &messageRow{
			Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID, Input: input, Idx: uint32(i),
			Version: uint64(e.Version), MessageID: m.ID, Role: m.Role, Raw: m.Raw,
			Folded: foldedText(m),
		})
	}
	return rows
}

// stateRow is a row of states.
type stateRow struct {
	Tenant   string `ch:"tenant"`
	ThreadID string `ch:"thread_id"`
	RunID    string `ch:"run_id"`
	Version  uint64 `ch:"version"`
	State    string `ch:"state"`
}

// erasureRow is a row of erasures.
type erasureRow struct {
	Tenant   string    `ch:"tenant"`
	ThreadID string    `ch:"thread_id"`
	Below    int64     `ch:"below"`
	At       time.Time `ch:"at"`
	Version  uint64    `ch:"version"`
}

// detailRow is a row of thread_details.
type detailRow struct {
	Tenant   string `ch:"tenant"`
	ThreadID string `ch:"thread_id"`
	Name     string `ch:"name"`
	Version  uint64 `ch:"version"`
	Deleted  uint8  `ch:"deleted"`
	Value    string `ch:"value"`
	Folded   string `ch:"folded"`
}

func newDetailRow(e store.Entry) *detailRow {
	row := &detailRow{
		Tenant: e.Tenant, ThreadID: e.ThreadID, Name: e.Detail.Name, Version: uint64(e.Version),
		Value: e.Detail.Value, Folded: store.Folded(e.Detail.Value),
	}
	if row.Value == "" {
		row.Deleted = 1
	}
	return row
}

// positionRow is a row of positions.
type positionRow struct {
	Tenant       string `ch:"tenant"`
	RawPartition int32  `ch:"raw_partition"`
	RawNext      uint64 `ch:"raw_next"`
}
