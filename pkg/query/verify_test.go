package query

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/verify"
)

// talk puts a run of one message on the log and returns its offsets: start, message, kept event, state, end.
func talk(f *rawFixture, run string) []int64 {
	return []int64{
		f.event(run, fmt.Sprintf(started, run)),
		f.event(run, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`),
		f.event(run, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}`),
		f.event(run, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`),
		f.event(run, fmt.Sprintf(custom, "a")),
		f.event(run, `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`),
		f.event(run, fmt.Sprintf(finished, run)),
	}
}

func TestVerify_SaysWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*record.Run)
		differences []string
		from        string
	}{
		"another text": {
			func(r *record.Run) {
				r.Messages[0].Raw = json.RawMessage(`{"id":"m","role":"assistant","content":"bye"}`)
			},
			[]string{"messages"}, "3:1",
		},
		"another kept event": {
			func(r *record.Run) { r.Events[0] = json.RawMessage(`{"type":"CUSTOM","name":"b"}`) },
			[]string{"events"}, "3:4",
		},
		"another state":    {func(r *record.Run) { r.State = json.RawMessage(`{"n":2}`) }, []string{"state"}, "3:5"},
		"another end":      {func(r *record.Run) { r.Terminal = json.RawMessage(`{"type":"RUN_FINISHED"}`) }, []string{"terminal"}, "3:6"},
		"another hash":     {func(r *record.Run) { r.Raw.SHA256 = strings.Repeat("0", 64) }, []string{"raw.sha256"}, "3:0"},
		"another count":    {func(r *record.Run) { r.Raw.Events = 9 }, []string{"raw.events"}, "3:0"},
		"counts of a type": {func(r *record.Run) { r.Stats.EventBytes["CUSTOM"]++ }, []string{"stats.eventBytes"}, "3:4"},
		"another input":    {func(r *record.Run) { r.InputSHA256 = strings.Repeat("0", 64) }, []string{"inputSha256"}, "3:0"},
		"events that nobody sent": {
			func(r *record.Run) { r.Events = append(r.Events, json.RawMessage(`{"type":"CUSTOM","name":"b"}`)) },
			[]string{"events"}, "3:0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t)
			f.indexedFor("acme", "chat", "r", "", c.change, talk(f, "r")...)
			var p proofAnswer
			r := f.json("/v1/threads/chat/runs/r/verify", &p)
			described(t, "Proof", r.body)
			if p.Verdict != verify.Differs || !slices.Equal(p.Differences, c.differences) || p.DiffersFrom == nil ||
				p.DiffersFrom.String() != c.from {
				t.Errorf("verdict %s, differences %v from %v, want %v from %s", p.Verdict, p.Differences, p.DiffersFrom, c.differences, c.from)
			}
		})
	}
}

func TestVerify_SaysWhatItDoesNotProve(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record.Run)
		remark string
	}{
		"abandoned": {func(r *record.Run) {
			end := r.StartedAt
			r.Status, r.Synthetic, r.EndedAt, r.Terminal = record.StatusAbandoned, true, &end, json.RawMessage(`{"type":"RUN_ERROR","message":"silent"}`)
		}, "the end: "},
		"truncated": {func(r *record.Run) {
			r.Truncated, r.Messages[0].Raw = true, json.RawMessage(`{"id":"m","role":"assistant","content":"","metadata":{"skeinTruncated":{}}}`)
		}, "contents: those above"},
		"open":                  {func(*record.Run) {}, "what came after"},
		"raw lost":              {func(r *record.Run) { r.RawLost = true }, "the events that were gone"},
		"folded by other rules": {func(r *record.Run) { r.FoldVersion, r.State = 99, json.RawMessage(`{"n":2}`) }, "contents: they were folded by version 99"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t)
			at := talk(f, "r")
			f.indexedFor("acme", "chat", "r", "", c.change, at[:len(at)-1]...)
			var p proofAnswer
			f.json("/v1/threads/chat/runs/r/verify", &p)
			if p.Verdict != verify.Proved || !slices.ContainsFunc(p.Unproved, func(s string) bool { return strings.HasPrefix(s, c.remark) }) {
				t.Errorf("verdict %s, differences %v, unproved %q", p.Verdict, p.Differences, p.Unproved)
			}
		})
	}
}

// A child that began without what its parent had said (placed-alone) is folded without it, and the proof says that nobody knows whether
// there was no room.
func TestVerify_FoldsARunThatBeganAlone(t *testing.T) {
	f := newRawFixture(t)
	parent := []int64{f.event("p", fmt.Sprintf(started, "p")), f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`)}
	child := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	parent = append(parent, f.event("p", fmt.Sprintf(finished, "p")))
	child = append(child, f.event("r", fmt.Sprintf(finished, "r")))
	f.indexed("p", "", parent...)
	for alone, want := range map[int64]verify.Verdict{1: verify.Proved, 0: verify.Differs} {
		f.indexedFor("acme", "chat", "r", "", func(r *record.Run) {
			r.ParentRunID, r.ParentBy, r.Depth = "p", record.ParentExplicit, 1
			if alone > 0 {
				r.Stats.Anomalies = map[string]int64{lineage.AnomalyPlacedAlone: alone}
			}
		}, child...)
		var p proofAnswer
		f.json("/v1/threads/chat/runs/r/verify", &p)
		if p.Verdict != want {
			t.Errorf("alone %d: verdict %s %s, differences %v", alone, p.Verdict, p.Reason, p.Differences)
		}
		if slices.Contains(p.Unproved, verify.UnprovedAlone) != (alone > 0) {
			t.Errorf("alone %d: unproved is %q", alone, p.Unproved)
		}
	}
}

// A child that started while its parent was going on is folded from how the parent stood then.
func TestVerify_FoldsAParentThatWasGoingOn(t *testing.T) {
	f := newRawFixture(t)
	parent := []int64{f.event("p", fmt.Sprintf(started, "p")), f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`)}
	child := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	parent = append(parent, f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"n":2}}`), f.event("p", fmt.Sprintf(finished, "p")))
	child = append(child, f.event("r", `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/m","value":3}]}`), f.event("r", fmt.Sprintf(finished, "r")))
	f.indexed("p", "", parent...)
	for _, c := range []struct {
		state string
		want  verify.Verdict
	}{{`{"n":1,"m":3}`, verify.Proved}, {`{"n":2,"m":3}`, verify.Differs}} {
		f.indexedFor("acme", "chat", "r", "", func(r *record.Run) {
			r.ParentRunID, r.ParentBy, r.Depth, r.State = "p", record.ParentExplicit, 1, json.RawMessage(c.state)
			delete(r.Stats.Anomalies, "state-delta-failed")
		}, child...)
		var p proofAnswer
		f.json("/v1/threads/chat/runs/r/verify", &p)
		if p.Verdict != c.want {
			t.Errorf("with state %s: verdict %s %s, differences %v", c.state, p.Verdict, p.Reason, p.Differences)
		}
	}
	if err := f.cluster.Fake.DeleteRecords(f.cluster.Config.Topics().Events, 3, child[0]); err != nil {
		t.Fatal(err)
	}
	var p proofAnswer
	f.json("/v1/threads/chat/runs/r/verify", &p)
	if p.Verdict != verify.Unproved || !strings.Contains(p.Reason, "its parent") {
		t.Errorf("verdict %s %q", p.Verdict, p.Reason)
	}
}

// A parent of which a record says the place alone: what it had said is in no record yet, but in the raw events.
func TestVerify_AParentWhoseEventsAreInNoRecordYet(t *testing.T) {
	f := newRawFixture(t)
	parent := f.event("p", fmt.Sprintf(started, "p"))
	f.event("p", `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`)
	child := []int64{f.event("r", fmt.Sprintf(started, "r")), f.event("r", fmt.Sprintf(finished, "r"))}
	f.indexedFor("acme", "chat", "p", "", func(r *record.Run) {
		none := fold.NewTally()
		r.Raw.Next, r.Raw.Ranges, r.Raw.Events, r.Raw.SHA256 = r.Raw.First, nil, 0, none.SHA256()
		r.Open.Pending, r.Open.Placed = true, true
	}, parent)
	for state, want := range map[string]verify.Verdict{`{"n":1}`: verify.Proved, `{"n":2}`: verify.Differs} {
		f.indexedFor("acme", "chat", "r", "", func(r *record.Run) {
			r.ParentRunID, r.ParentBy, r.Depth, r.State = "p", record.ParentExplicit, 1, json.RawMessage(state)
		}, child...)
		for run, want := range map[string]verify.Verdict{"p": verify.Proved, "r": want} {
			var p proofAnswer
			f.json("/v1/threads/chat/runs/"+run+"/verify", &p)
			if p.Verdict != want {
				t.Errorf("%s: verdict %s %q, differences %v", run, p.Verdict, p.Reason, p.Differences)
			}
		}
	}
}

// An input that was sent beside the stream begins no run: b, whose input was there before anything of a, goes on from a.
func TestVerify_TakesNoInputForABeginning(t *testing.T) {
	f := newRawFixture(t)
	input := func(run, messages string) int64 {
		return f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: run, Seq: -1},
			fmt.Sprintf(`{"threadId":"chat","runId":%q,"messages":[%s],"tools":[],"context":[],"forwardedProps":{}}`, run, messages))
	}
	const ua, ma = `{"id":"ua","role":"user","content":"one"}`, `{"id":"m-a","role":"assistant","content":"a"}`
	a, b := []int64{input("a", ua)}, []int64{input("b", ua+","+ma)}
	for _, of := range []struct {
		run string
		at  *[]int64
	}{{"a", &a}, {"b", &b}} {
		*of.at = append(*of.at, f.event(of.run, fmt.Sprintf(started, of.run)),
			f.event(of.run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%[1]s","role":"assistant","delta":%[1]q}`, of.run)),
			f.event(of.run, fmt.Sprintf(finished, of.run)))
	}
	f.indexed("a", "", a...)
	for branch, want := range map[string]string{"a": "proved []", "b": "differs [branchId]"} {
		f.indexedFor("acme", "chat", "b", "", func(r *record.Run) {
			r.ParentRunID, r.ParentBy, r.Base, r.BranchID, r.RootRunID, r.Depth = "a", record.ParentContent, "a", branch, "a", 1
			r.Messages, r.Layout, r.InputMessages, r.InputLayout = r.Messages[2:], nil, nil, nil // encoded relative to a
			r.Stats.Messages = 1
		}, b...)
		for _, path := range []string{"/v1/threads/chat/runs/a/verify", "/v1/threads/chat/runs/b/verify", "/v1/threads/chat/verify"} {
			for line := range strings.Lines(f.get("acme", path).body) {
				var p proofAnswer
				if err := json.Unmarshal([]byte(line), &p); err != nil {
					t.Fatal(err)
				}
				want := want
				if p.RunID == "a" {
					want = "proved []"
				}
				if got := fmt.Sprint(p.Verdict, " ", p.Differences); got != want {
					t.Errorf("%s: run %s: %s, want %s", path, p.RunID, got, want)
				}
				// By itself nobody knows whether the other had begun.
				if got, want := slices.Contains(p.Unproved, verify.UnprovedPlace), path == "/v1/threads/chat/runs/a/verify"; got != want {
					t.Errorf("%s: run %s: unproved %q", path, p.RunID, p.Unproved)
				}
			}
		}
	}
}

// A place is decided again from what lay before it. The input of the second run was sent ahead, and goes
// on from the first.
func TestVerify_ProvesPlaces(t *testing.T) {
	place := func(r *record.Run) {
		r.ParentRunID, r.ParentBy, r.Base, r.BranchID, r.RootRunID, r.Depth = "a", record.ParentContent, "a", "a", "a", 1
		r.Messages, r.Layout, r.InputMessages, r.InputLayout = r.Messages[1:], nil, nil, nil // encoded relative to a
		r.Stats.Messages = 0
	}
	for name, c := range map[string]struct {
		change      func(*record.Run)
		going       bool // a third run was going on
		verdict     verify.Verdict
		differences string
	}{
		"as it was decided":      {func(*record.Run) {}, false, verify.Proved, ""},
		"another branch":         {func(r *record.Run) { r.BranchID = "b" }, false, verify.Differs, "branchId"},
		"another way":            {func(r *record.Run) { r.ParentBy = record.ParentLatest }, false, verify.Differs, "parentBy"},
		"another depth and root": {func(r *record.Run) { r.RootRunID, r.Depth = "b", 7 }, false, verify.Differs, "rootRunId depth"},
		"beside another run":     {func(r *record.Run) { r.BranchID = "b" }, true, verify.Proved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t)
			if c.going {
				at := talk(f, "open")
				f.indexed("open", "", at[:len(at)-1]...)
			}
			f.indexed("a", "", f.event("a", fmt.Sprintf(started, "a")),
				f.event("a", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"hello"}`), f.event("a", fmt.Sprintf(finished, "a")))
			input := f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "b", Seq: -1},
				`{"threadId":"chat","runId":"b","messages":[{"id":"m","role":"assistant","content":"hello"}],"tools":[],"context":[],"forwardedProps":{}}`)
			f.indexedFor("acme", "chat", "b", "", func(r *record.Run) { place(r); c.change(r) },
				input, f.event("b", fmt.Sprintf(started, "b")), f.event("b", fmt.Sprintf(finished, "b")))
			for _, path := range []string{"/v1/threads/chat/runs/b/verify", "/v1/threads/chat/verify"} {
				r := f.get("acme", path)
				lines := strings.Split(strings.TrimSpace(r.body), "\n")
				var p proofAnswer
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &p); err != nil || r.status != http.StatusOK {
					t.Fatalf("%s: %d %s", path, r.status, r.body)
				}
				if got := strings.Join(p.Differences, " "); p.RunID != "b" || p.Verdict != c.verdict || got != c.differences ||
					slices.Contains(p.Unproved, verify.UnprovedPlace) != c.going {
					t.Errorf("%s: run %s: %s, differences %q, unproved %q; want %s, %q", path, p.RunID, p.Verdict, got, p.Unproved, c.verdict,
						c.differences)
				}
			}
		})
	}
}

// One answer a line for all runs, also where one of them cannot be proved for now.
func TestVerify_OfAThreadSaysAllRuns(t *testing.T) { onBothLogs(t, saysAllRuns) }

func saysAllRuns(f *rawFixture) {
	t := f.t
	f.indexed("a", "", talk(f, "a")...)
	at := talk(f, "b")
	f.indexed("b", "", at[:len(at)-1]...)
	delete(f.records.values, record.Position{Partition: 3, Offset: f.version}) // b has a newer record by now
	f.indexedFor("acme", "other", "c", "", nil, f.add("acme", "other", record.Headers{Kind: record.KindEvent, Seq: -1}, fmt.Sprintf(started, "c")))
	r := f.get("acme", "/v1/threads/chat/verify")
	var got []string
	for line := range strings.Lines(r.body) {
		var p proofAnswer
		described(t, "Proof", line)
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		got = append(got, p.RunID+" "+string(p.Verdict))
	}
	if want := "a proved, b unproved"; strings.Join(got, ", ") != want || r.header.Get("Content-Type") != typeNDJSON {
		t.Errorf("%v, want %s\n%s", got, want, r.body)
	}
	f.get("acme", "/v1/threads/nowhere/verify").problem(t, http.StatusNotFound)
	f.get("acme", "/v1/threads/chat/verify?atLeast=3:999").problem(t, http.StatusTooEarly)
}

func TestVerify_RefusesARecordOfAnother(t *testing.T) {
	f := newRawFixture(t)
	f.indexed("r", "", talk(f, "r")...)
	at := record.Position{Partition: 3, Offset: f.version}
	theirs, err := record.DecodeRun(f.records.values[at])
	if err != nil {
		t.Fatal(err)
	}
	theirs.Tenant = "umbrella"
	if f.records.values[at], err = record.EncodeRun(theirs); err != nil {
		t.Fatal(err)
	}
	f.get("acme", "/v1/threads/chat/runs/r/verify").problem(t, http.StatusInternalServerError)
	delete(f.records.values, at)
	f.get("acme", "/v1/threads/chat/runs/r/verify").problem(t, http.StatusServiceUnavailable)
	f.get("acme", "/v1/threads/chat/runs/nobody/verify").problem(t, http.StatusNotFound)
}

func TestRawLog_FailsWhereKafkaIsAway(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	f.raw.readers = kafka.NewReaders(kafka.Config{Brokers: []string{"127.0.0.1:1"}}, f.raw.cfg.Topics().Events, 1)
	f.get("acme", chatR).problem(t, http.StatusServiceUnavailable)
}

func TestIndexed_PassesOnARefusalForLackOfSlots(t *testing.T) {
	f := newFixture(t)
	c := f.acmes("chat")
	if err := c.load.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.load.close()
	f.service.room.slots.Add("acme", f.service.room.slots.Limit()) // others get the slot when it waits
	_, err := (&indexed{call: c, runs: []store.Run{behind}}).History(behind.RunID)
	if why := new(front.Problem); !errors.As(err, &why) || why.Limit != "slots" {
		t.Errorf("it returns %v", err)
	}
}

// Reads of records have a limit of their own, and a refusal by it is not one of the store.
func TestOpenContents_RefusesByTheLimitOfSlots(t *testing.T) {
	f := newFixture(t)
	f.service.room.patience = time.Millisecond
	f.service.room.records.Add("acme", f.service.room.records.Limit())
	_, err := f.acmes("chat").openContents(t.Context(), store.Run{})
	if why := new(front.Problem); !errors.As(err, &why) || why.Status != http.StatusTooManyRequests || why.Limit != "slots" {
		t.Errorf("it returns %v", err)
	}
}

// A read of one event does not wait for all that lies behind it, and gives what it was asked for.
func TestRawLog_ReadsLittleForLittle(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	const n = 40
	for range n { // a batch each
		value := make([]byte, 64<<10)
		if _, err := rand.Read(value); err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, cluster.Config, &kgo.Record{Topic: cluster.Config.Topics().Events, Key: []byte("acme/t"), Value: value})
	}
	log := newRawLog(cluster.Config)
	defer log.readers.Close()
	raw, err := log.open(t.Context(), testRoom().load("acme"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	var got []int64
	if err := raw.each(t.Context(), [][2]int64{{3, 4}, {5, 7}},
		func(m *kgo.Record) error { got = append(got, m.Offset); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []int64{3, 5, 6}) || raw.to > n/2 {
		t.Errorf("it gave %v, and read %d of %d records", got, raw.to-3, n-3)
	}
}

// Reads anywhere on the log, many at a time, give each its records: they take clients over from each other, and make few.
func TestRawLog_SharesItsClients(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 2)
	const n = 300
	for p := range int32(2) {
		var records []*kgo.Record
		for i := range n {
			records = append(records, &kgo.Record{
				Topic: cluster.Config.Topics().Events, Partition: p, Key: []byte("acme/t"), Value: fmt.Appendf(nil, "%d:%d", p, i),
			})
		}
		kafkatest.Produce(t, cluster.Config, records...)
	}
	wire := cluster.Wire()
	log := newRawLog(wire.Config)
	defer log.readers.Close()
	read := func(seed uint64) {
		random := mathrand.New(mathrand.NewPCG(seed, 0))
		raw, err := log.open(t.Context(), testRoom().load("acme"), random.Int32N(2))
		if err != nil {
			t.Error(err)
			return
		}
		defer raw.close()
		for range 3 { // also backwards
			first := random.Int64N(n)
			last := first + random.Int64N(n-first)
			next := first
			err := raw.each(t.Context(), [][2]int64{{first, last}}, func(m *kgo.Record) error {
				if want := fmt.Sprintf("%d:%d", raw.partition, next); string(m.Value) != want || m.Offset != next {
					return fmt.Errorf("seed %d: got %s at %d, want %s", seed, m.Value, m.Offset, want)
				}
				next++
				return nil
			})
			if err != nil || next != last {
				t.Errorf("seed %d: read %d to %d of %d to %d: %v", seed, first, next, first, last, err)
			}
		}
	}
	seed := seedtest.New(t)
	for range 5 {
		var under sync.WaitGroup
		for range rawKept {
			seed++
			its := seed
			under.Go(func() { read(its) })
		}
		under.Wait()
	}
	// Each connection begins with one, and a client has three of a broker. One that stalls is made anew, so up to half of what unshared
	// clients would make may pass.
	if hellos := wire.Sent()[kmsg.ApiVersions]; hellos == 0 || hellos > 5*rawKept*3/2 {
		t.Errorf("%d reads made %d connections", 5*rawKept, hellos)
	}
}
