package chaos_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
	"github.com/skeinhq/skein/pkg/verify/scan"
)

// check is the reading of all topics at the end, and what is wrong there.
type check struct {
	t    *testing.T
	cfg  kafka.Config
	load *load

	threads map[string][]*kgo.Record // of the raw topic, by key
	runs    map[string]*record.Run   // as they must be, by record key
	again   map[string][]*record.Run // the same by thread
	figures figures
	wrong   []string
}

// figures are what was found.
type figures struct {
	events, runs, sealed, open, checkpoints, letters, snapshots, refolds int
}

func (c *check) problem(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// all does all checks. The compactors must have gone through everything.
func (c *check) all() {
	c.readEvents()
	refused := c.foldAgain()
	c.checkRuns()
	c.checkShadow()
	c.checkLetters(refused)
	c.checkSnapshots()
	slices.Sort(c.wrong)
}

// readEvents takes the raw topic apart by thread.
func (c *check) readEvents() {
	c.threads = map[string][]*kgo.Record{}
	for _, m := range kafkatest.Consume(c.t, c.cfg, c.cfg.Topics().Events) {
		c.threads[string(m.Key)] = append(c.threads[string(m.Key)], m)
		c.figures.events++
	}
	if c.figures.events != c.load.sent {
		c.problem("events: there are %d, and %d were sent", c.figures.events, c.load.sent)
	}
}

// foldAgain folds each thread once more, alone, in one go and without Kafka. It returns the records that
// are no part of a run, with the reason for it.
func (c *check) foldAgain() map[*kgo.Record]string {
	c.runs, c.again = map[string]*record.Run{}, map[string][]*record.Run{}
	refused := map[*kgo.Record]string{}
	for key, events := range c.threads {
		parts, err := record.SplitKey(key)
		if err != nil {
			c.t.Fatal(err)
		}
		var sources []partition.Source
		for _, m := range events {
			h, err := record.ParseHeaders(m.Headers)
			if err != nil {
				c.t.Fatal(err)
			}
			sources = append(sources, partition.Source{Headers: h, Value: m.Value, At: m.Timestamp})
		}
		runs, letters, err := partition.Offline(partition.DefaultConfig(), parts[0], parts[1], sources)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, l := range letters {
			refused[events[l.Source]] = l.Reason
		}
		c.again[key] = runs
		for _, r := range runs {
			// It counted the thread's records.
			r.Raw.Partition = events[0].Partition
			r.Raw.First = events[r.Raw.First].Offset
			r.Raw.Next = events[r.Raw.Next-1].Offset + 1
			id, err := record.RunKey(r.Tenant, r.ThreadID, r.RunID)
			if err != nil {
				c.t.Fatal(err)
			}
			c.runs[id] = r
		}
	}
	return refused
}

// checkRuns wants each run that has ended sealed by one record in the whole log, nothing of it after
// that, and of each run the last record as the load and the second fold have it.
func (c *check) checkRuns() {
	last := map[string]*record.Run{}
	sealed := map[string]int{}
	told := map[int32]int64{}
	for _, m := range kafkatest.Consume(c.t, c.cfg, c.cfg.Topics().Runs) {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil {
			c.t.Fatal(err)
		}
		switch h.Kind {
		case record.KindFence:
			continue
		case record.KindProgress:
			reached, err := record.DecodeProgress(m.Value)
			if err != nil {
				c.t.Fatal(err)
			}
			if reached.Next < told[m.Partition] {
				c.problem("position of partition %d: it went back from %d to %d", m.Partition, told[m.Partition], reached.Next)
			}
			told[m.Partition] = reached.Next
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			c.t.Fatal(err)
		}
		key := string(m.Key)
		switch {
		case sealed[key] > 0:
			c.problem("%s: another record, %s, after it was sealed", key, r.Status)
		case last[key] != nil && r.Raw.Next < last[key].Raw.Next:
			c.problem("%s: it went back from %d to %d", key, last[key].Raw.Next, r.Raw.Next)
		}
		if r.Status.Sealed() {
			sealed[key]++
		} else {
			c.figures.checkpoints++
		}
		last[key] = r
	}
	for key, t := range c.load.runs {
		r := last[key]
		if r == nil {
			c.problem("%s: there is no record of it", key)
			continue
		}
		c.figures.runs++
		if want := map[bool]int{true: 1}[t.ended]; sealed[key] != want {
			c.problem("%s: sealed %d times, want %d", key, sealed[key], want)
		}
		if t.ended {
			c.figures.sealed++
		} else {
			c.figures.open++
		}
		if r.Raw.Events != t.events || r.Raw.SHA256 != t.sha256() {
			c.problem("%s: it holds %d events with the hash %.8s, sent were %d with %.8s", key, r.Raw.Events, r.Raw.SHA256, t.events, t.sha256())
		}
		c.checkRanges(key, r)
		c.compare(key, r)
	}
	for key := range last {
		if c.load.runs[key] == nil {
			c.problem("%s: nobody has sent such a run", key)
		}
	}
}

// checkRanges wants every event of a run in the ranges of its record.
func (c *check) checkRanges(key string, r *record.Run) {
	thread, err := record.ThreadKey(r.Tenant, r.ThreadID)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range c.threads[thread] {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil {
			c.t.Fatal(err)
		}
		in := func(span [2]int64) bool { return span[0] <= m.Offset && m.Offset < span[1] }
		if h.RunID == r.RunID && m.Offset < r.Raw.Next && !slices.ContainsFunc(r.Raw.Ranges, in) {
			c.problem("%s: its event at %d is in none of its ranges", key, m.Offset)
		}
	}
}

// compare holds a record to the second fold's, all of it but for the ranges.
func (c *check) compare(key string, r *record.Run) {
	want := c.runs[key]
	if want == nil {
		c.problem("%s: the second fold has no such run", key)
		return
	}
	got := *r
	got.Raw.Ranges, want.Raw.Ranges = nil, nil
	a, err := record.EncodeRun(want)
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := record.EncodeRun(&got)
	if err != nil {
		c.t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		from := max(0, at-40)
		c.problem("%s: its record is not that of the second fold: …%s, want …%s", key, b[from:min(at+60, len(b))], a[from:min(at+60, len(a))])
	}
}

// checkShadow wants each record of a run that has ended to be what its raw events make: folded by the reader of "skein
// refold", which shares with the stage how an event is read and folded, and nothing of how it commits or restores.
func (c *check) checkShadow() {
	err := scan.Changes(c.t.Context(), c.cfg, scan.Query{}, func(r verify.Result) error {
		key, err := record.RunKey(r.Tenant, r.ThreadID, r.RunID)
		if err != nil {
			return err
		}
		switch t := c.load.runs[key]; {
		case t == nil || t.ended && r.Outcome != verify.Same:
			c.problem("%s: folded again its record is %s: %s %v", key, r.Outcome, r.Why, r.Differences)
		case t.ended:
			c.figures.refolds++
		}
		return nil
	})
	if err != nil {
		c.problem("folding again: %v", err)
	}
	if c.figures.refolds != c.figures.sealed {
		c.problem("folded again, %d records are the same, and %d runs are sealed", c.figures.refolds, c.figures.sealed)
	}
}

// checkLetters wants what was planted in dead letters, each once, for its reason and with its position,
// and nothing else.
func (c *check) checkLetters(refused map[*kgo.Record]string) {
	type letter struct{ position, reason string }
	want := map[letter]int{}
	for m, reason := range refused {
		want[letter{record.Position{Partition: m.Partition, Offset: m.Offset}.String(), reason}]++
		if c.load.letters[string(m.Value)] != reason {
			c.problem("dead letters: the second fold has %s for what was planted as %q: %s", reason, c.load.letters[string(m.Value)], m.Value)
		}
	}
	if len(refused) != len(c.load.letters) {
		c.problem("dead letters: the second fold has %d, and %d were planted", len(refused), len(c.load.letters))
	}
	for _, m := range kafkatest.Consume(c.t, c.cfg, c.cfg.Topics().DeadLetters) {
		got := letter{header(m, record.HeaderPosition), header(m, record.HeaderReason)}
		if want[got]--; want[got] < 0 {
			c.problem("dead letters: one too many: %s %s", got.position, got.reason)
		}
		c.figures.letters++
	}
	for l, n := range want {
		if n > 0 {
			c.problem("dead letters: missing: %s %s", l.position, l.reason)
		}
	}
}

var header = kafkatest.Header

// checkSnapshots wants snapshots in pairs that stand for the same run, each branch's last one with the
// conversation and the state that its records give.
func (c *check) checkSnapshots() {
	type pair struct{ messages, state *kgo.Record }
	branches := map[string]pair{}
	for _, m := range kafkatest.Consume(c.t, c.cfg, c.cfg.Topics().Snapshots) {
		parts, err := record.SplitKey(string(m.Key))
		if err != nil {
			c.t.Fatal(err)
		}
		branch, err := record.RunKey(parts[0], parts[1], parts[2])
		if err != nil {
			c.t.Fatal(err)
		}
		p := branches[branch]
		if parts[3] == string(agui.MessagesSnapshot) {
			if p.messages != nil && p.state == nil {
				c.problem("snapshot of %s: of %s there are messages and no state", branch, header(p.messages, record.HeaderRunID))
			}
			p = pair{messages: m}
		} else {
			p.state = m
			c.figures.snapshots++
		}
		branches[branch] = p
	}
	for branch, p := range branches {
		if p.messages == nil || p.state == nil || header(p.messages, record.HeaderRunID) != header(p.state, record.HeaderRunID) {
			c.problem("snapshot of %s: its last messages and its last state are not of the same run", branch)
			continue
		}
		thread := branch[:strings.LastIndexByte(branch, '/')]
		history, err := verify.NewRecords(c.again[thread]).History(header(p.messages, record.HeaderRunID))
		if err != nil {
			c.problem("snapshot of %s: %v", branch, err)
			continue
		}
		var messages struct {
			Messages []json.RawMessage `json:"messages"`
		}
		var state struct {
			Snapshot json.RawMessage `json:"snapshot"`
		}
		if err := json.Unmarshal(p.messages.Value, &messages); err != nil {
			c.t.Fatal(err)
		}
		if err := json.Unmarshal(p.state.Value, &state); err != nil {
			c.t.Fatal(err)
		}
		same := func(got json.RawMessage, want agui.Message) bool { return bytes.Equal(got, want.Raw) }
		if !slices.EqualFunc(messages.Messages, history.Messages, same) || !bytes.Equal(state.Snapshot, history.State) {
			c.problem("snapshot of %s: it is not what the records give", branch)
		}
	}
}

// drained waits until the group has committed every event, and decided on every one, and reports what is
// behind if that does not happen. Runs that never end hold back nothing once they are checkpointed.
func drained(ctx context.Context, cfg kafka.Config, admin *kadm.Client, patience time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		behind, err := lag(ctx, cfg, admin)
		if err == nil && len(behind) == 0 {
			return nil
		}
		pause(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			if err != nil {
				behind = append(behind, "asking for committed offsets: "+err.Error())
			}
			return behind
		}
	}
}

// lag compares the group's offsets, and the positions that go with them, with the ends of the partitions.
func lag(ctx context.Context, cfg kafka.Config, admin *kadm.Client) ([]string, error) {
	topic := cfg.Topics().Events
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return nil, err
	}
	offsets, err := admin.FetchOffsets(kadm.RequireStable(ctx), cfg.TopicPrefix+"skein-compactor")
	if err = cmp.Or(err, offsets.Error()); err != nil {
		return nil, err
	}
	var behind []string
	for _, p := range slices.Sorted(maps.Keys(ends[topic])) {
		end := ends[topic][p].Offset
		committed, _ := offsets.Lookup(topic, p)
		want := fmt.Sprintf("skein1 p=%d n=%d t=", end, partitions) // and the stream time
		if end > 0 && (committed.At != end || !strings.HasPrefix(committed.Metadata, want)) {
			behind = append(behind, fmt.Sprintf("partition %d: it ends at %d, committed is %d with %q", p, end, committed.At, committed.Metadata))
		}
	}
	return behind, nil
}
