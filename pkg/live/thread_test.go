package live_test

import (
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
)

// noRecords is the source of a thread whose runs have no records.
type noRecords struct{}

var errNoRecord = errors.New("no run has a record")

func (noRecords) Record(string) (*record.Run, error)      { return nil, errNoRecord }
func (noRecords) History(string) (lineage.History, error) { return lineage.History{}, errNoRecord }
func (noRecords) Holding([]string) ([]string, error)      { return nil, nil }

// announced is the source of a thread whose run has only an announcement.
type announced struct {
	noRecords
	record *record.Run
}

func (a announced) Record(string) (*record.Run, error) { return a.record, nil }

// A run keeps the families that its record says, from its first event on.
func TestThread_KeepsTheFirstEvent(t *testing.T) {
	hash, err := sha256.New().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	rec := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Status: record.StatusRunning, Raw: record.Raw{First: 4, Next: 4, NextSeq: -1},
		Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: "r", RootRunID: "r"}, Open: &record.Open{Hash: hash, Pending: true},
	}
	thread, err := live.New("t", []*record.Run{rec}, 4, announced{record: rec}, true)
	if err != nil {
		t.Fatal(err)
	}
	const custom = `{"type":"CUSTOM","name":"n","value":1}`
	r, _, err := thread.Take(record.Event{Offset: 4, Time: time.UnixMilli(4), Key: []byte("acme/t"), Value: []byte(custom),
		Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1}})
	if err != nil {
		t.Fatal(err)
	}
	now, err := thread.Current(r)
	if err != nil || len(now.Events) != 1 || string(now.Events[0]) != custom {
		t.Errorf("%v, %+v", err, now)
	}
}

// truncated is the source of a thread whose run's record lacks the text of its messages.
type truncated struct{ noRecords }

func (truncated) History(string) (lineage.History, error) {
	return lineage.History{Messages: []agui.Message{message("u1", "the que…"), message("a1", "the ans…")}}, nil
}

func message(id, text string) agui.Message {
	return agui.Message{ID: id, Role: agui.RoleUser, Raw: fmt.Appendf(nil, `{"id":%q,"role":"user","content":%q}`, id, text)}
}

// A run on a truncated one is found by what its whole history says, as by the compactor.
func TestThread_FindsARunOnATruncatedOne(t *testing.T) {
	rec := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r1", Status: record.StatusFinished, Truncated: true, MessageCount: 2,
		HistoryKey: lineage.KeyOf([]agui.Message{message("u1", "the question"), message("a1", "the answer")}).String(),
		Lineage:    record.Lineage{ParentBy: record.ParentNone, BranchID: "r1", RootRunID: "r1"}, Raw: record.Raw{Next: 1, NextSeq: -1},
	}
	thread, err := live.New("t", []*record.Run{rec}, 1, truncated{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var last *live.Run
	for i, value := range []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r2","parentRunId":"r1"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a2","role":"user","delta":"more"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`,
		`{"type":"RUN_STARTED","threadId":"t","runId":"r3","input":{"messages":["the question","the answer","more","and?"]}}`,
	} {
		if last, _, err = thread.Take(record.Event{Offset: int64(i + 1), Time: time.UnixMilli(1), Key: []byte("acme/t"), Value: []byte(value),
			Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: []string{"r2", "r3"}[i/3], Seq: -1}}); err != nil {
			t.Fatal(err)
		}
	}
	if last.Parent != "r2" || last.ParentBy != lineage.ParentContent {
		t.Errorf("the parent is %q by %s", last.Parent, last.ParentBy)
	}
}

// Below the index, what ingest must have signed belongs to no run, except a late error from before that was required.
func TestThread_KnowsTheLateErrorFromBeforeSignatures(t *testing.T) {
	rec := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Status: record.StatusError, LateError: &record.LateError{Offset: 1},
		Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: "r", RootRunID: "r"}, Raw: record.Raw{Next: 1, NextSeq: -1},
	}
	thread, err := live.New("t", []*record.Run{rec}, 3, noRecords{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]fold.Outcome{1: fold.LateError, 2: fold.NoRun} {
		_, outcome, err := thread.Take(record.Event{Offset: offset, Key: []byte("acme/t"), Value: []byte(`{"type":"RUN_ERROR","message":"late"}`),
			Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1}, Signature: record.SignatureWrong})
		if err != nil || outcome != want {
			t.Errorf("the outcome at %d is %q, %v; want %q", offset, outcome, err, want)
		}
	}
}

// What a fold holds counts, and not what came: snapshots replace one another, and RAW leaves nothing.
func TestThread_CountsWhatFoldsHold(t *testing.T) {
	thread, err := live.New("t", nil, 0, noRecords{}, false)
	if err != nil {
		t.Fatal(err)
	}
	offset := int64(0)
	take := func(events ...string) {
		t.Helper()
		for _, value := range events {
			_, outcome, err := thread.Take(record.Event{
				Offset: offset, Time: time.UnixMilli(offset), Key: []byte("acme/t"), Value: []byte(value),
				Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1},
			})
			if err != nil || outcome != fold.Folded {
				t.Fatalf("%s: %s, %v", value, outcome, err)
			}
			offset++
		}
	}
	kilobyte := strings.Repeat("x", 1000)
	take(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	for range 2000 {
		take(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"note":%q}}`, kilobyte), fmt.Sprintf(`{"type":"RAW","event":%q}`, kilobyte))
	}
	if held := thread.Bytes(); held > 100_000 {
		t.Errorf("a state of a kilobyte counts as %d bytes", held)
	}
	take(`{"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant"}`)
	for range 2000 {
		take(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":%q}`, kilobyte))
	}
	if held := thread.Bytes(); held < 2_000_000 || held > 9_000_000 {
		t.Errorf("a message of 2 MB counts as %d bytes", held)
	}
}

// Events that a run's record keeps as they came, though they fold to nothing, are held by no fold of a stream: it gives them on and is done
// with them. The fold by which a reader resumes counts as well.
func TestThread_HoldsNoEventThatFoldsToNothing(t *testing.T) {
	ended := time.UnixMilli(1)
	recorded := &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Status: record.StatusFinished, EndedAt: &ended,
		Raw:   record.Raw{Next: 1 << 20, NextSeq: -1, Ranges: [][2]int64{{0, 1 << 20}}},
		Stats: record.Stats{Anomalies: map[string]int64{"malformed": 1}},
	}
	recorded.ParentBy, recorded.BranchID, recorded.RootRunID = record.ParentNone, "r", "r"
	for name, records := range map[string][]*record.Run{"a run that goes on": nil, "a run whose outcomes are found again": {recorded}} {
		t.Run(name, func(t *testing.T) {
			thread, err := live.New("t", records, 0, noRecords{}, false)
			if err != nil {
				t.Fatal(err)
			}
			if r := thread.Get("r"); r != nil {
				thread.Replay(r, 0)
			}
			offset := int64(0)
			take := func(value string) {
				t.Helper()
				_, outcome, err := thread.Take(record.Event{
					Offset: offset, Time: time.UnixMilli(offset), Key: []byte("acme/t"), Value: []byte(value),
					Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1},
				})
				if err != nil || outcome != fold.Folded {
					t.Fatalf("%.100s: %s, %v", value, outcome, err)
				}
				offset++
			}
			heap := func() int64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			take(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
			megabyte := strings.Repeat("x", 1<<20)
			before := heap()
			for range 16 {
				take(`{"type":"CUSTOM","name":"n","value":"` + megabyte + `"}`)
				take(`{"type":"MADE_UP","value":"` + megabyte + `"}`)
			}
			if held := heap() - before; held > 4<<20 {
				t.Errorf("32 MiB of events that fold to nothing hold %d bytes", held)
			}
			take(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","role":"assistant","delta":"` + megabyte + `"}`)
			if held := thread.Bytes(); held < 1<<20 {
				t.Errorf("a message of 1 MiB counts as %d bytes", held)
			}
			runtime.KeepAlive(thread)
		})
	}
}
