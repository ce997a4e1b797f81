package partition

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func TestPartition_FoldsAThreadOfRuns(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	s.Input("t", "r2", `{"threadId":"t","runId":"r2","messages":[`+assistantMessage("m1", "answer m1")+`,`+userMessage("u2", "more")+`],"state":{"a":1},"tools":[],"context":[]}`)
	s.Turn("r2", "m2")
	s.all()

	r1, r2 := s.run("r1"), s.run("r2")
	equal(t, "status of r1", r1.Status, record.StatusFinished)
	equal(t, "parent of r1", r1.ParentBy, record.ParentNone)
	equal(t, "parent of r2", r2.ParentRunID, "r1")
	equal(t, "how it was found", r2.ParentBy, record.ParentContent)
	equal(t, "base of r2", r2.Base, "r1")
	equal(t, "branch of r2", r2.BranchID, "r1")
	equal(t, "depth of r2", r2.Depth, 1)
	equal(t, "own messages of r2", len(r2.Messages), 2)
	equal(t, "input messages of r2", len(r2.InputMessages), 1)
	equal(t, "message count of r2", r2.MessageCount, 3)
	equal(t, "positions of r2", r2.Raw.Ranges, [][2]int64{{3, 7}})
	equal(t, "events of r2", r2.Raw.Events, int64(3))
	messages, state := s.history("r2")
	equal(t, "history of r2", messages, `[`+assistantMessage("m1", "answer m1")+`,`+userMessage("u2", "more")+`,`+assistantMessage("m2", "answer m2")+`]`)
	equal(t, "state of r2", state, `{"a":1}`)

	sum := sha256.New()
	for _, m := range s.Events[4:] {
		sum.Write(append(m.Value, '\n'))
	}
	equal(t, "hash of r2", r2.Raw.SHA256, hex.EncodeToString(sum.Sum(nil)))
	equal(t, "hash of its input", r2.InputSHA256, record.SHA256(s.Events[3].Value))
	equal(t, "C", s.committed.Committed, int64(7))
	equal(t, "P", s.committed.Processed, int64(7))
	equal(t, "dead letters", s.letters(), []string{})

	snapshots := s.snapshots()
	equal(t, "snapshots", len(snapshots), 2)
	equal(t, "run of the snapshot", header(snapshots["acme/t/r1/MESSAGES_SNAPSHOT"], record.HeaderRunID), "r2")
	equal(t, "snapshot", string(snapshots["acme/t/r1/MESSAGES_SNAPSHOT"].Value), `{"type":"MESSAGES_SNAPSHOT","messages":`+messages+`}`)
	equal(t, "state snapshot", string(snapshots["acme/t/r1/STATE_SNAPSHOT"].Value), `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`)
}

func TestPartition_RoutesEventsWithoutRunID(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "", custom("before any run")) // 0
	s.Send("t", "", started("a"))
	s.Send("t", "", text("m", "of a"))
	s.Send("t", "", started("b"))
	s.Send("t", "", text("n", "of b"))
	s.Send("t", "", finished("b"))
	s.Send("t", "", text("m", " and on")) // a is the only one that has not ended
	s.Send("t", "", finished("a"))
	s.Send("t", "", custom("after all runs")) // 8
	s.all()
	equal(t, "dead letters", s.letters(), []string{"0:0 no-run", "0:8 no-run"})
	a, _ := s.history("a")
	equal(t, "history of a", a, `[`+assistantMessage("m", "of a and on")+`]`)
	equal(t, "events of b", s.run("b").Raw.Events, int64(3))
}

func TestPartition_RefusesBadDataAndCostsNothingElse(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))                                                                                 // 0
	s.Send("t", "r", `{"type":"TEXT_MESSAGE_CONTENT"`)                                                             // 1
	s.Send("t", "r", `{"type":"TEXT_MESSAGE_CONTENT","messageId":5}`)                                              // 2
	s.Send("t", "r", `{"no":"type"}`)                                                                              // 3
	s.Send("t", "r", `{"type":"CUSTOM","name":"x","value":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}`) // 4
	s.Send("t", "new", `not json`)                                                                                 // 5: opens no run
	s.Send("t", "r", `{"type":"CUSTOM","name":"big","value":"`+strings.Repeat("x", kafka.MaxValueBytes)+`"}`)      // 6
	m := s.Send("t", "r", custom("x"))                                                                             // 7
	m.Key = []byte("not a key")
	s.Send("t", "r", custom("x"), kgo.RecordHeader{Key: record.HeaderVersion, Value: []byte("no")}) // 8
	s.SendKind(record.KindRun, "t", "r", `{}`)                                                      // 9
	s.Input("t", "r", `[]`)                                                                         // 10
	s.SendKind("Event", "t", "r", custom("x"))                                                      // 11
	s.Send("t", "r", finished("r"))                                                                 // 12
	s.all()
	equal(t, "dead letters", s.letters(), []string{
		"0:1 malformed", "0:2 malformed", "0:3 malformed", "0:4 malformed", "0:5 malformed", "0:6 too-large",
		"0:7 bad-key", "0:8 bad-headers", "0:9 unknown-kind", "0:10 malformed", "0:11 unknown-kind",
	})
	r := s.run("r")
	equal(t, "status", r.Status, record.StatusFinished)
	equal(t, "folded events", r.Raw.Events, int64(2))
	equal(t, "anomalies", r.Stats.Anomalies[fold.AnomalyMalformed], int64(5))
	equal(t, "runs", len(s.latest()), 1)
}

func TestPartition_RefusesRecordsOfOtherPartitions(t *testing.T) {
	s := newSim(t, nil)
	s.committed.Partitions = 12
	s.open(false)
	s.committed.Partitions = 1
	key := ""
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if k, _ := record.ThreadKey("acme", id); record.Partition([]byte(k), 12) != 0 {
			key = k
			break
		}
	}
	m := s.Send("t", "r", started("r"))
	m.Key = []byte(key)
	if err := s.part.process(m, s.Now); err != nil {
		t.Fatal(err)
	}
	b, err := s.part.collect(s.Now)
	if err != nil || len(b.Outputs) != 2 { // and the position
		t.Fatalf("got %d outputs, error %v", len(b.Outputs), err)
	}
	equal(t, "reason", header(b.Outputs[0].Record, record.HeaderReason), deadletter.WrongPartition)
}

func TestPartition_SealsAtTheFirstTerminalEvent(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r", "m")                                                      // 0 to 2
	s.Send("t", "r", finished("r"))                                       // 3: counted
	s.Send("t", "r", text("m", "late"))                                   // 4: dead letter
	s.Send("t", "r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`) // 5: r~2
	s.Send("t", "r", text("n", "second"))
	s.Send("t", "r~2", started("r~2")) // 7: an agent's own r~2
	s.Send("t", "r", finished("r"))    // 8
	s.Send("t", "r", text("n", "late"))
	s.Send("t", "r~2", finished("r~2"))
	s.all()
	equal(t, "dead letters", s.letters(), []string{"0:4 after-terminal", "0:9 after-terminal"})
	equal(t, "status", s.run("r").Status, record.StatusFinished)
	equal(t, "client run id", s.run("r~2").ClientRunID, "r")
	equal(t, "its end", s.run("r~2").Raw.Next, int64(9))
	equal(t, "client run id", s.run("r~2~2").ClientRunID, "r~2")
}

// An id of the greatest length that is used again has no room for a number: it is cut before it.
func TestPartition_MakesRoomForTheNumberOfAnIDUsedAgain(t *testing.T) {
	s := newSim(t, nil)
	x, fox := strings.Repeat("x", 512), strings.Repeat("🦊", 128)
	other := strings.Repeat("x", 511) + "y"
	for _, id := range []string{x, fox, x, fox, other, other, x} {
		s.Send("t", id, started(id))
		s.Send("t", id, text("m", "hello"))
		s.Send("t", id, finished(id))
	}
	s.all()
	equal(t, "dead letters", s.letters(), []string{})
	for id, clientRunID := range map[string]string{
		x: "", fox: "", other: "", x[:510] + "~2": x, fox[:508] + "~2": fox, x[:510] + "~3": other, x[:510] + "~4": x,
	} {
		r := s.run(id)
		equal(t, "client run id of "+id[500:], r.ClientRunID, clientRunID)
		equal(t, "status", r.Status, record.StatusFinished)
	}
}

func TestPartition_DropsRepeatedSeqs(t *testing.T) {
	const input = `{"threadId":"t","runId":"r","messages":[],"state":{"a":1},"tools":[],"context":[]}`
	s := newSim(t, nil)
	s.Input("t", "r", input)
	s.Send("t", "r", started("r"), seq(0))
	s.Send("t", "r", text("m", "a"), seq(1))
	s.Send("t", "r", started("r"), seq(0))
	s.Send("t", "r", text("m", "a"), seq(1))
	s.Send("t", "r", text("m", "b"), seq(2))
	s.Send("t", "r", text("m", "d"), seq(4))
	s.Send("t", "r", finished("r"), seq(5))
	s.Input("t", "r", input) // the whole request once more, after the end
	s.Send("t", "r", started("r"), seq(0))
	s.Send("t", "r", finished("r"), seq(5))
	s.all()
	r := s.run("r")
	equal(t, "folded events", r.Raw.Events, int64(5))
	equal(t, "next seq", r.Raw.NextSeq, int64(6))
	equal(t, "repeats", r.Stats.Anomalies[fold.AnomalyRepeat], int64(2))
	equal(t, "gaps", r.Stats.Anomalies[fold.AnomalyGap], int64(1))
	messages, _ := s.history("r")
	equal(t, "history", messages, `[`+assistantMessage("m", "abd")+`]`)
	equal(t, "runs", len(s.latest()), 1)
	equal(t, "dead letters", s.letters(), []string{})
}

// Of a whole run that is sent again, the hash shows whether its bytes are those that the record has.
func TestPartition_CountsRunsThatAreSentAgainWithOtherBytes(t *testing.T) {
	s := newSim(t, nil)
	send := func(last string) {
		s.Send("t", "r", started("r"), seq(0))
		s.Send("t", "r", text("m", "a"), seq(1))
		s.Send("t", "r", last, seq(2))
	}
	differ := func(want ...Repetition) {
		t.Helper()
		s.all()
		equal(t, "runs that differ", s.differing, want)
	}
	s.Send("t", "open", started("open"), seq(0))
	s.Send("t", "open", text("m", "a"), seq(1))
	s.Send("t", "open", started("open"), seq(0))
	s.Send("t", "open", text("m", "a"), seq(1))
	differ()
	s.Send("t", "open", started("open"), seq(0))
	s.Send("t", "open", text("m", "b"), seq(1))
	s.Send("t", "open", text("m", "c"), seq(2))
	differ(Repetition{"acme", "t", "open"})
	s.differing = nil
	send(finished("r"))
	send(finished("r"))
	s.Send("t", "r", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":1}`, seq(2)) // the end alone
	differ()
	send(`{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":1}`)
	send(finished("r"))
	differ(Repetition{"acme", "t", "r"})
}

func TestPartition_TakesTheInputBeforeTheFirstEventOnly(t *testing.T) {
	input := func(id string) string {
		return `{"threadId":"t","runId":"r","messages":[` + userMessage(id, "hello") + `],"tools":[],"context":[]}`
	}
	s := newSim(t, nil)
	s.Input("t", "r", input("u1"))
	s.Input("t", "r", input("u1")) // sent twice
	s.Input("t", "r", input("u2")) // another one: it counts
	s.Send("t", "r", started("r"))
	s.Input("t", "r", input("u3")) // too late
	s.Send("t", "r", finished("r"))
	s.all()
	r := s.run("r")
	// and none for the repeat
	equal(t, "anomalies", r.Stats.Anomalies, map[string]int64{fold.AnomalyInputReplaced: 1, fold.AnomalyLateInput: 1})
	messages, _ := s.history("r")
	equal(t, "history", messages, `[`+userMessage("u2", "hello")+`]`)
	equal(t, "positions", r.Raw.Ranges, [][2]int64{{0, 6}})
}

// The announcement of a run of which only the input has come names the parent that this input chooses, and has none of its messages.
func TestPartition_AnnouncesAnInputWhereItsFirstEventWouldBegin(t *testing.T) {
	s := newSim(t, nil)
	s.answer("r1", startedWith("r1", "", "["+userMessage("u1", "one")+"]"))
	s.answer("r2", startedWith("r2", "", "["+userMessage("u2", "two")+"]"))
	s.Input("t", "r3", `{"threadId":"t","runId":"r3","messages":[`+userMessage("u1", "one")+","+assistantMessage("a-r1", "answer")+","+
		userMessage("u3", "three")+`],"tools":[],"context":[]}`)
	s.all()
	r := s.run("r3")
	if r.ParentRunID != "r1" || r.ParentBy != record.ParentContent || r.Open == nil || r.Open.Placed || r.Base != "" || r.MessageCount != 0 {
		t.Errorf("%+v", r)
	}
	s.open(true)
	s.Send("t", "r3", started("r3"))
	s.all()
	equal(t, "base", s.run("r3").Base, "r1")
}

func TestPartition_HoldsTheCommitAtTheOldestUnwrittenEvent(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	s.Send("u", "open", started("open"))
	s.Send("u", "open", text("m", "x"))
	s.Turn("r2", "m2")
	s.all()
	equal(t, "C", s.committed.Committed, int64(3))
	equal(t, "P", s.committed.Processed, int64(8))

	s.Now = s.Now.Add(s.cfg.CheckpointInterval)
	s.commit(true)
	equal(t, "C after the checkpoint", s.committed.Committed, int64(8))
	equal(t, "status", s.run("open").Status, record.StatusRunning)

	s.Send("u", "open", text("m", "y"))
	s.all()
	equal(t, "C with one new event", s.committed.Committed, int64(8))
	s.Now = s.Now.Add(s.cfg.CheckpointInterval)
	s.commit(true)
	equal(t, "C while the run has grown little", s.committed.Committed, int64(8))
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	equal(t, "C after the longest interval", s.committed.Committed, int64(9))
}

func TestPartition_AbandonsSilentRunsInStreamTimeAndYields(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	s.Send("t", "r", text("m", "a"))
	s.all()
	s.Now = s.Now.Add(s.cfg.IdleLimit - time.Second)
	s.Send("u", "x", started("x"))
	s.all()
	equal(t, "status before the limit", s.run("r").Status, record.StatusRunning)
	s.Now = s.Now.Add(time.Second)
	s.Send("u", "x", finished("x"))
	s.all()
	r := s.run("r")
	equal(t, "status", r.Status, record.StatusAbandoned)
	equal(t, "synthetic", r.Synthetic, true)
	equal(t, "terminal event", strings.Contains(string(r.Terminal), codeAbandoned), true)
	equal(t, "C", s.committed.Committed, int64(4))

	s.open(true)
	s.Send("t", "", text("m", "b"))
	s.Send("t", "r", finished("r"))
	s.all()
	r = s.run("r")
	equal(t, "status after a real end", r.Status, record.StatusFinished)
	equal(t, "synthetic after a real end", r.Synthetic, false)
	equal(t, "events", r.Raw.Events, int64(4))
	messages, _ := s.history("r")
	equal(t, "history", messages, `[`+assistantMessage("m", "ab")+`]`)
}

func TestPartition_WritesLargeBranchesWholeOnlyOnceHalfIsNew(t *testing.T) {
	s := newSim(t, func(c *Config) { c.SnapshotBelow = 1 << 10 })
	var wrote []int
	for i := range 40 {
		id := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		s.Send("t", id, started(id))
		s.Send("t", id, text("m"+id, strings.Repeat("y", 200)))
		s.Send("t", id, finished(id))
		before := len(s.other)
		s.all()
		if len(s.other) > before {
			wrote = append(wrote, i)
		}
	}
	// 1 KB is reached at the fifth turn; from there on the conversation doubles between snapshots.
	equal(t, "turns that were written whole", wrote, []int{0, 1, 2, 3, 7, 15, 31})
}

func TestPartition_CutsRecordsOverTheLimit(t *testing.T) {
	s := newSim(t, func(c *Config) { c.RecordLimit = 64 << 10 })
	s.Send("t", "r", started("r"))
	for range 4 {
		s.Send("t", "r", text("m", strings.Repeat("x", 30<<10)))
	}
	s.Send("t", "r", text("n", "small"))
	for range 1000 { // each too small for a reference of its own
		s.Send("t", "r", `{"type":"CUSTOM","name":"x","value":"`+strings.Repeat("z", 90)+`"}`)
	}
	s.Send("t", "r", finished("r"))
	s.Turn("r2", "m2")
	s.all()
	r := s.run("r")
	equal(t, "truncated", r.Truncated, true)
	equal(t, "status", r.Status, record.StatusFinished)
	equal(t, "last message", string(r.Messages[1].Raw), assistantMessage("n", "small"))
	messages, _ := s.history("r2")
	equal(t, "descendants build on what the record says", strings.Contains(messages, "skeinTruncated"), true)
	equal(t, "snapshot", string(s.snapshots()["acme/t/r/MESSAGES_SNAPSHOT"].Value), `{"type":"MESSAGES_SNAPSHOT","messages":`+messages+`}`)
}

// Where the conversation of a branch is over the limit, an oversize record stands in for it; the state is whole and
// of the same run, and the conversation is restored over the chain. It gives way to a whole one that is small enough.
func TestPartition_SaysWhereASnapshotIsTooLarge(t *testing.T) {
	s := newSim(t, func(c *Config) { c.RecordLimit, c.SnapshotBelow = 8<<10, 1<<20 })
	kinds := func(run, want string) *kgo.Record {
		t.Helper()
		s.all()
		messages, state := s.snapshots()["acme/t/r0/MESSAGES_SNAPSHOT"], s.snapshots()["acme/t/r0/STATE_SNAPSHOT"]
		equal(t, "messages", header(messages, record.HeaderKind)+" of "+header(messages, record.HeaderRunID), want+" of "+run)
		equal(t, "state", header(state, record.HeaderKind)+" of "+header(state, record.HeaderRunID), "snapshot of "+run)
		equal(t, "state's value", string(state.Value), `{"type":"STATE_SNAPSHOT","snapshot":{"run":"`+run+`"}}`)
		return messages
	}
	var whole []string
	for i := range 8 {
		id := fmt.Sprint("r", i)
		s.Send("t", id, started(id))
		s.Send("t", id, text("m"+id, strings.Repeat("y", 1500)))
		s.Send("t", id, `{"type":"STATE_SNAPSHOT","snapshot":{"run":"`+id+`"}}`)
		s.Send("t", id, finished(id))
		whole = append(whole, assistantMessage("m"+id, strings.Repeat("y", 1500)))
		if i < 4 {
			kinds(id, "snapshot")
		}
	}
	last := kinds("r7", "oversize")
	size := len(`{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(whole, ",") + `]}`)
	equal(t, "in its place", string(last.Value), fmt.Sprintf(`{"bytes":%d}`, size))
	messages, _ := s.history("r7")
	equal(t, "restored over the chain", messages, "["+strings.Join(whole, ",")+"]")

	s.Send("t", "r8", started("r8"))
	s.Send("t", "r8", `{"type":"MESSAGES_SNAPSHOT","messages":[`+userMessage("u", "short")+`]}`)
	s.Send("t", "r8", `{"type":"STATE_SNAPSHOT","snapshot":{"run":"r8"}}`)
	s.Send("t", "r8", finished("r8"))
	equal(t, "small again", string(kinds("r8", "snapshot").Value), `{"type":"MESSAGES_SNAPSHOT","messages":[`+userMessage("u", "short")+`]}`)
}

func TestPosition_SurvivesItsMetadata(t *testing.T) {
	want := Progress{Committed: 5, Processed: 9, Partitions: 12}
	got, err := ParseProgress(5, want.Metadata(), 12)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "position", got, want)
	if _, err := ParseProgress(5, want.Metadata(), 13); err == nil {
		t.Error("another partition count was accepted")
	}
	for _, bad := range []string{"garbage", "skein1 p=3 n=12", "skein2 p=9 n=12"} {
		if _, err := ParseProgress(5, bad, 12); err == nil {
			t.Errorf("metadata %q was accepted", bad)
		}
	}
	if got, err = ParseProgress(-1, "", 12); err != nil || got != (Progress{Partitions: 12, noMetadata: true}) {
		t.Errorf("nothing committed gave %+v, %v", got, err)
	}
	if again, err := ParseProgress(0, got.Metadata(), 12); err != nil || again != got {
		t.Errorf("behind a fence, nothing committed gave %+v, %v", again, err)
	}
}

func TestPartition_MarksOpenRunsWhereRawIsGone(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	s.Send("u", "open", started("open"))
	s.all()
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	s.Send("u", "open", text("m", "gone"))
	s.Send("u", "open", text("m", "here"))
	s.Send("u", "open", finished("open"))
	s.open(true)
	s.openGap(5)
	s.all()
	equal(t, "mark", s.run("open").RawLost, true)
	equal(t, "mark of a sealed run", s.run("r1").RawLost, false)
	messages, _ := s.history("open")
	equal(t, "history", messages, `[`+assistantMessage("m", "here")+`]`)
	equal(t, "C", s.committed.Committed, int64(7))
}

// The record of a run may have no room for the mark: it is written all the same, as nothing but that keeps it over a crash.
func TestPartition_MarksAnOpenRunWhoseRecordIsAtTheLimit(t *testing.T) {
	s := newSim(t, nil)
	s.Send("u", "open", text("m", strings.Repeat("x", 1_000)))
	s.all()
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	s.cfg.RecordLimit = len(s.values()["acme/u/open"])
	s.Send("u", "open", text("m", "gone"))
	s.open(false)
	s.openGap(2)
	equal(t, "C", s.committed.Committed, int64(2))
	s.open(false)
	s.Send("u", "open", finished("open"))
	s.all()
	equal(t, "mark", s.run("open").RawLost, true)
}

// Of a run that has no record, as it began below the gap a moment ago or in it, nobody knows: what it shows first behind the gap is not how
// runs begin. That holds for an idle limit, as others may begin that way, and comes out the same however the process dies.
func TestPartition_MarksRunsThatBeganWhereRawIsGone(t *testing.T) {
	for _, c := range []struct {
		name      string
		every     int // events in a transaction, beside those between the committed and the processed offset
		newFolder bool
		dies      bool // behind each transaction; told or not
		offsets   bool // of the group are lost each time
		down      time.Duration
		dated     time.Duration // the first record behind the gap
	}{
		{name: "at once", every: 100, down: time.Minute, dated: time.Minute},
		{name: "one by one", every: 1, down: time.Minute, dated: time.Minute},
		{name: "behind a record of long ago", every: 1, down: 3 * time.Hour},
		{name: "behind a record of the future", every: 1, down: 3 * time.Hour, dated: 9 * time.Hour},
		{name: "and it dies", every: 1, dies: true, down: time.Minute, dated: time.Minute},
		{name: "and it dies on its way", every: 3, dies: true, newFolder: true, down: 3 * time.Hour},
		{name: "and only skein.runs knows", every: 2, dies: true, newFolder: true, offsets: true, down: time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("a", "before", started("before"))
			s.Send("a", "before", text("m", "gone "))
			s.all()
			equal(t, "C", s.committed.Committed, int64(0))
			equal(t, "P", s.committed.Processed, int64(2))
			s.Send("b", "within", started("within"))
			s.Now = s.Now.Add(c.dated)
			s.Send("a", "before", text("m", "here"))
			s.Now = s.Now.Add(c.down - c.dated)
			s.Send("d", "behind", started("behind"))
			s.Send("b", "within", text("m", "here"))
			s.Input("e", "asked", `{"threadId":"e","runId":"asked","messages":[],"tools":[],"context":[]}`)
			s.Send("e", "asked", text("m", "here"))
			s.Send("d", "behind", text("m", "here"))
			for _, of := range []string{"a/before", "b/within", "d/behind", "e/asked"} {
				thread, run, _ := strings.Cut(of, "/")
				s.Send(thread, run, finished(run))
			}
			s.open(c.newFolder)
			s.openGap(3)
			late := false
			for s.part.progress.Processed < int64(len(s.Events)) || !late {
				if s.part.progress.Processed == int64(len(s.Events)) {
					s.Now, late = s.Now.Add(s.cfg.IdleLimit), true
					s.Send("f", "odd", text("m", "it never says that it begins"))
					s.Send("f", "odd", finished("odd"))
				}
				s.feed(int(s.part.progress.Processed) - s.read + c.every)
				s.commit(!c.dies)
				if c.offsets {
					s.committed = Progress{Partitions: 1, noMetadata: true}
				}
				if c.dies {
					s.open(c.newFolder)
				}
			}
			s.all()
			got := map[string]bool{}
			for id, r := range s.latest() {
				equal(t, "status of "+id, r.Status, record.StatusFinished)
				got[id] = r.RawLost
			}
			equal(t, "marks", got, map[string]bool{"before": true, "within": true, "behind": false, "asked": false, "odd": false})
			equal(t, "what the position says of the gap", s.part.progress.Gap, record.Gap{})
			s.checkHeads()
		})
	}
}

// A run whose record reaches behind the gap has lost nothing, though it may go on.
func TestPartition_MarksNobodyWhoseRecordReachesBehindWhatIsGone(t *testing.T) {
	s := newSim(t, nil)
	for _, run := range []string{"lost", "kept"} {
		s.Send(run, run, started(run))
	}
	s.Send("kept", "kept", text("m", "one"))
	s.all()
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	s.committed = Progress{Partitions: 1, Processed: 3} // as if a run without a record had held it
	s.open(true)
	s.openGap(2)
	s.all()
	equal(t, "marks", []bool{s.run("lost").RawLost, s.run("kept").RawLost}, []bool{true, false})
}

// They are marked in portions. Until the last of them is committed the group's offset stays and nothing is told: a process that
// dies in between leaves the others to the next one, also where only the group said what was skipped.
func TestPartition_MarksManyRunsInPortions(t *testing.T) {
	const portion = maxExpiryBytes/runOverhead + 1
	n := 4 * portion
	for _, tool := range []bool{false, true} { // that set the group's offset
		s := newSim(t, nil)
		s.manyRuns(n)
		s.Send("t0", "r", text("m", "gone"))
		s.Send("t0", "r", text("m", "here"))
		group := s.committed
		if tool {
			group = Progress{Committed: 2, Processed: 2, Partitions: 1, noMetadata: true}
		}
		begin := func(newFolder bool) {
			s.committed = Progress{Committed: 1, Processed: 1, Partitions: 1}
			s.open(newFolder)
			s.part.committed, s.committed = group, group
			s.check(s.part.openGap(2, 0))
		}
		begin(false)
		records := len(s.runs)
		for s.part.gap != nil {
			runs, bytes := s.runsWritten()
			if runs > portion || bytes > maxExpiryBytes || len(s.part.runs.byKey) > 6*portion {
				t.Fatalf("%d runs of %d bytes in a transaction, %d in memory", runs, bytes, len(s.part.runs.byKey))
			}
			if s.part.gap != nil {
				equal(t, "what is committed meanwhile", s.committed, group)
			}
			if marked := len(s.runs) - records; marked == runs {
				begin(true)
				equal(t, "that are left after a crash", len(s.part.gap.marks), n-runs)
			}
		}
		equal(t, "records", len(s.runs)-records, n+1) // and a position
		equal(t, "C", s.committed, Progress{Committed: 2, Processed: 2, Partitions: 1, Gap: record.Gap{End: 2}})
		equal(t, "is read next", s.part.next, int64(2))
		s.read = 2
		s.all()
		for key, value := range s.values() {
			if key != record.ProgressKey && !strings.Contains(value, `"rawLost":true`) {
				t.Fatalf("%s is %s", key, value)
			}
		}
		s.rest()
		r, err := record.DecodeRun([]byte(s.values()["acme/t0/r"]))
		s.check(err)
		equal(t, "events", r.Raw.Events, int64(2))
		s.checkHeads()
	}
}

// An id that is used again opens a run of its own, numbered events or not: only the same RUN_STARTED
// with a number that was seen is a repeat.
func TestPartition_TakesAnIDUsedAgainForANewRun(t *testing.T) {
	for name, numbered := range map[string]bool{"numbered": true, "not numbered": false} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			for i, at := range []string{"1795250047000", "1795250048000"} {
				var headers [3][]kgo.RecordHeader
				for n := range headers {
					if numbered {
						headers[n] = []kgo.RecordHeader{seq(n)}
					}
				}
				s.Send("t", "r", `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":`+at+`}`, headers[0]...)
				s.Send("t", "r", text("m"+strconv.Itoa(i), "x"), headers[1]...)
				s.Send("t", "r", finished("r"), headers[2]...)
			}
			s.all()
			equal(t, "events of the first", s.run("r").Raw.Events, int64(3))
			equal(t, "events of the second", s.run("r~2").Raw.Events, int64(3))
			equal(t, "dead letters", len(s.letters()), 0)
		})
	}
}

// A record has null for a number that no double can hold: the same RUN_STARTED is a repeat all the same.
func TestPartition_TakesARepeatWithANumberBeyondDoublesForOne(t *testing.T) {
	s := newSim(t, nil)
	for range 2 {
		s.Send("t", "r", `{"type":"RUN_STARTED","threadId":"t","runId":"r","metadata":{"n":1e400}}`, seq(0))
		s.Send("t", "r", finished("r"), seq(1))
		s.all()
	}
	equal(t, "runs", len(s.latest()), 1)
	equal(t, "events", s.run("r").Raw.Events, int64(2))
	equal(t, "dead letters", len(s.letters()), 0)
}

func TestPartition_ARecordFromTheFutureAbandonsNobody(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	late := s.Send("other", "o", started("o"))
	late.Timestamp = s.Now.Add(1000 * time.Hour)
	s.Send("t", "r", text("m", "x"))
	s.all()
	for _, r := range s.latest() {
		equal(t, "status", r.Status, record.StatusRunning)
	}
}

// What was found in a run's input is said at its end as at its checkpoint, also by a process that has the run from there.
func TestPartition_SaysOfAnInputWhatItsCheckpointSaid(t *testing.T) {
	play := func(dies bool) *record.Run {
		s := newSim(t, nil)
		s.open(false)
		input := func(run, more string, messages ...string) {
			s.Input("t", run, fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[%s],"tools":[],"context":[]%s}`, run, strings.Join(messages, ","), more))
			s.Send("t", run, started(run))
		}
		input("r1", "", userMessage("u1", "hello"))
		s.Send("t", "r1", text("a1", "x"))
		s.Send("t", "r1", finished("r1"))
		input("r2", `,"resume":[{"interruptId":"i","status":"resolved"}]`, userMessage("u1", "edited"), assistantMessage("a1", "x"), userMessage("u2", "go on"))
		s.feed(len(s.Events))
		s.commit(true)
		s.Now = s.Now.Add(s.cfg.CheckpointMax)
		s.commit(true)
		equal(t, "status of the checkpoint", s.run("r2").Status, record.StatusRunning)
		if dies {
			s.open(true)
		}
		s.Send("t", "r2", finished("r2"))
		s.feed(1)
		s.commit(true)
		return s.run("r2")
	}
	want, got := play(false), play(true)
	equal(t, "rewrites", want.Rewrote, []string{"edited"})
	equal(t, "resumed", len(want.Resumes), 1)
	equal(t, "the record of a process that took the run over", got, want)
}

// An abandoned run that has only an input, and whose record is over the limit, ends for good where it was placed
// for now: this process and the next one place what comes behind it alike.
func TestPartition_GoesOnBehindAnInputThatIsTooLargeForARecord(t *testing.T) {
	for name, reopen := range map[string]func(s *sim){
		"the same process": func(*sim) {}, "the same folder": func(s *sim) { s.open(false) }, "a new folder": func(s *sim) { s.open(true) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, func(c *Config) { c.RecordLimit = 4000 })
			s.Turn("first", "m1")
			s.Input("t", "large", fmt.Sprintf(`{"threadId":"t","runId":"large","messages":[%s,%s],"tools":[],"context":[]}`,
				assistantMessage("m1", "answer m1"), userMessage("u", strings.Repeat("x", 3000))))
			s.all()
			s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
			s.Send("other", "x", text("m", "later"))
			s.all()
			large := s.run("large")
			equal(t, "status and what is left of it", []any{large.Status, large.Truncated, large.Open == nil},
				[]any{record.StatusAbandoned, true, true})
			s.checkHeads()
			reopen(s)
			s.Turn("next", "m2")
			s.all()
			next := s.run("next")
			equal(t, "place of the next run", []any{next.ParentRunID, next.ParentBy, next.BranchID, next.RootRunID, next.Depth, next.Base},
				[]any{"large", record.ParentLatest, "first", "first", 2, "large"})
		})
	}
}

// What a run's record counts of how its records came is counted for the metric, too; of a run that does not come to be nothing is.
func TestPartition_CountsAnomaliesForTheMetric(t *testing.T) {
	s := newSim(t, nil)
	s.Input("t", "r", `{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[]}`)
	s.Input("t", "r", `{"threadId":"u","runId":"q","messages":[],"tools":[],"context":[]}`)
	s.Send("t", "r", started("r"), seq(0), says(record.HeaderIncomplete, "1")[0])
	s.Send("t", "r", text("m", "a"), seq(2))
	s.Send("t", "r", text("m", "a"), seq(2))
	s.Send("t", "r", text("m", "b"), seq(1))
	s.Send("t", "r", `{"type":`)
	s.Send("t", "never", `{"type":`, seq(7))
	s.Send("t", "never", `{"type":"TEXT_MESSAGE_CHUNK","delta":"of no message"}`, seq(7))
	s.Input("t", "r", `{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[],"state":1}`)
	s.open(false)
	s.feed(len(s.Events))
	counted := maps.Clone(s.part.counts.Anomalies)
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	want := map[string]int{}
	for _, rule := range fold.Rules() {
		want[rule] = 1
		equal(t, rule+" in the record", s.run("r").Stats.Anomalies[rule], 1)
	}
	equal(t, "for the metric", counted, want)
	equal(t, "runs", len(s.latest()), 1)
}

// A run whose parent is not there when it begins is a root for good, and keeps the name: of a run that never comes,
// and of one that begins later, with its input before the child or behind.
func TestPartition_KeepsTheNameOfAParentThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		input, comes, late bool
	}{
		"it never comes":                {false, false, false},
		"its input came, and no more":   {true, false, false},
		"it comes late":                 {false, true, true},
		"its input came, and it begins": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			if c.input {
				s.Input("t", "p", `{"threadId":"t","runId":"p","messages":[`+userMessage("u", "x")+`],"tools":[],"context":[]}`)
			}
			s.Send("t", "c", `{"type":"RUN_STARTED","threadId":"t","runId":"c","parentRunId":"p"}`)
			if c.comes {
				s.Send("t", "p", started("p"))
				s.Send("t", "p", finished("p"))
			}
			s.Send("t", "c", finished("c"))
			s.all()
			child := s.run("c")
			if child.ParentRunID != "" || child.SpawnedBy != "p" {
				t.Errorf("parent %q, spawned by %q", child.ParentRunID, child.SpawnedBy)
			}
			var runs []lineage.Run
			for _, r := range s.latest() {
				h, err := fold.MetadataOf(r)
				s.check(err)
				runs = append(runs, h.Run)
			}
			spawns := lineage.NewGraph(runs).Spawns()
			if len(spawns) != 1 || spawns[0].Run != "c" || spawns[0].Late != c.late {
				t.Errorf("spawns are %v, want one of c, late %v", spawns, c.late)
			}
		})
	}
}

// A client that sends no message ids answers an interrupt with the user's message alone, beside the stream or on RUN_STARTED.
func TestPartition_AResumeNamesTheParent(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"delete it"}]`
	const resume = `"resume":[{"interruptId":"i1","status":"resolved","payload":{"approved":true}}]`
	for _, beside := range []bool{true, false} {
		s := newSim(t, nil)
		s.Input("t", "r1", `{"threadId":"t","runId":"r1",`+messages+`,"tools":[],"context":[]}`)
		s.Send("t", "r1", started("r1"))
		s.Send("t", "r1", text("a1", "may I?"))
		s.Send("t", "r1", `{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"approval_required"}]}}`)
		s.answer("other", startedWith("other", "elsewhere", "[]")) // ends last
		s.all()
		if beside {
			s.Input("t", "r2", `{"threadId":"t","runId":"r2",`+messages+`,`+resume+`,"tools":[],"context":[]}`)
			s.Send("t", "r2", started("r2"))
		} else {
			s.Send("t", "r2", `{"type":"RUN_STARTED","threadId":"t","runId":"r2","input":{"messages":[],`+resume+`}}`)
		}
		s.open(true) // the local store finds the run
		s.Send("t", "r2", finished("r2"))
		s.Send("t", "r3", `{"type":"RUN_STARTED","threadId":"t","runId":"r3","input":{"messages":[],`+resume+`}}`)
		s.Send("t", "r3", finished("r3"))
		s.all()
		if r := s.run("r2"); r.ParentRunID != "r1" || r.ParentBy != record.ParentContent {
			t.Errorf("beside the stream %v: %+v", beside, r.Lineage)
		}
		want := "message-r1~1=delete it a1"
		if beside {
			want = "message-r1~1=delete it"
		}
		equal(t, "history", s.ids("r2"), want)
		if r := s.run("r3"); r.ParentRunID == "r1" {
			t.Errorf("answered again: %+v", r.Lineage)
		}
	}
}

// An agent that is still at work spawns others in its thread: what they are given shares nothing with its conversation. They are lines of
// their own, no branches and no siblings of each other. With a message of it, without a whole input, or after its end, they are branches.
func TestPartition_TellsASpawnedRunFromABranch(t *testing.T) {
	task := `{"threadId":"t","runId":%q,"parentRunId":"p","messages":[%s],"state":{"n":1},"tools":[],"context":[]}`
	s := newSim(t, nil)
	s.Input("t", "p", `{"threadId":"t","runId":"p","messages":[`+userMessage("u", "plan a trip")+`],"tools":[],"context":[]}`)
	s.Send("t", "p", started("p"))
	s.Send("t", "p", text("a", "two agents look"))
	for _, id := range []string{"s1", "s2"} {
		s.Input("t", id, fmt.Sprintf(task, id, userMessage("task-"+id, "find a hotel")))
		s.Send("t", id, started(id))
		s.Send("t", id, text("a-"+id, "found"))
	}
	s.Input("t", "b1", fmt.Sprintf(task, "b1", userMessage("u", "plan a trip")+","+userMessage("u2", "to Rome")))
	s.Send("t", "b1", started("b1"))
	s.Send("t", "b2", startedWith("b2", "p", "["+userMessage("u3", "more")+"]"))
	s.Send("t", "p", finished("p"))
	s.Input("t", "b3", fmt.Sprintf(task, "b3", userMessage("u4", "something else")))
	s.Send("t", "b3", started("b3"))
	for _, id := range []string{"s1", "s2", "b1", "b2", "b3"} {
		s.Send("t", id, finished(id))
	}
	s.all()
	var runs []lineage.Run
	for _, r := range s.latest() {
		runs = append(runs, fold.LineageOf(r))
	}
	g := lineage.NewGraph(runs)
	for _, id := range []string{"s1", "s2"} {
		r := s.run(id)
		if r.ParentRunID != "" || r.ParentBy != record.ParentNone || r.SpawnedBy != "p" || !r.Spawned || r.BranchID != id ||
			len(g.Siblings(id)) > 0 {
			t.Errorf("%s: %+v, siblings %v", id, r.Lineage, g.Siblings(id))
		}
		equal(t, "history", s.ids(id), "task-"+id+" a-"+id)
		equal(t, "spawner", g.SpawnOf[g.Find(id)], lineage.Spawn{Run: id, By: "p", Known: "p"})
	}
	for _, id := range []string{"b1", "b2", "b3"} {
		if r := s.run(id); r.ParentRunID != "p" || r.ParentBy != record.ParentExplicit || r.SpawnedBy != "" || r.Spawned {
			t.Errorf("%s: %+v", id, r.Lineage)
		}
	}
}

// A run that goes on over an upgrade is told by the rules that it began by, as far as its record says.
func TestPartition_KeepsTheRulesVersionOfARunThatGoesOn(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	s.Send("t", "r", text("m", "one"))
	s.all()
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	at := s.runs[len(s.runs)-2] // before the progress record
	rec, err := record.DecodeRun(at.Value)
	s.check(err)
	rec.FoldVersion = compact.Version - 1
	at.Value, err = record.EncodeRun(rec)
	s.check(err)
	s.open(true)
	s.Send("t", "r", finished("r"))
	s.all()
	if got := s.run("r"); got.FoldVersion != compact.Version-1 || got.Status != record.StatusFinished {
		t.Errorf("%s by version %d", got.Status, got.FoldVersion)
	}
}
