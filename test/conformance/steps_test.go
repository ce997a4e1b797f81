package conformance_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
	"github.com/skeinhq/skein/test/conformance"
)

var stepsAll = flag.Bool("steps.all", false, "stop recorded runs behind each of their events, not behind some")

// stepsSome is behind how many events of a run it is stopped where -steps.all is not set.
const stepsSome = 2

// timelineOf returns the timeline of a recorded run, of which the record says no more than where it lies: its input is whole.
func timelineOf(t *testing.T, run recordings.Run) *timeline.Reader {
	t.Helper()
	lines := run.Lines()
	rec := &record.Run{ThreadID: run.ThreadID, RunID: run.RunID, Lineage: record.Lineage{ParentBy: record.ParentNone},
		Status: record.StatusFinished}
	rec.Raw = record.Raw{Next: int64(len(lines)) + 1, Ranges: [][2]int64{{0, int64(len(lines)) + 1}}}
	r, err := timeline.NewReader([]*record.Run{rec}, run.RunID, 0, 64<<20,
		func(string) (lineage.History, error) { panic("it goes on from nothing") })
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range append([][]byte{run.Input}, lines...) {
		kind := record.KindEvent
		if i == 0 {
			kind = record.KindInput
		}
		e := record.Event{Offset: int64(i), Time: time.UnixMilli(int64(i)), Headers: record.Headers{Kind: kind, RunID: run.RunID, Seq: -1},
			Value: value}
		if err := r.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Behind any of a recorded run's events, the history is what the official client holds that was given the events up to there.
func TestSteps_AreWhatTheOfficialClientHeld(t *testing.T) {
	client := conformance.Need(t)
	seed := seedtest.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	stopped := 0
	for _, thread := range recordings.All() {
		t.Run(thread.String(), func(t *testing.T) {
			for _, run := range thread.Runs {
				input, err := agui.DecodeInput(run.Input, "")
				if err != nil {
					t.Fatal(err)
				}
				r := timelineOf(t, run)
				lines := run.Lines()
				if r.Len() != len(lines) {
					t.Fatalf("%s: %d steps of %d events", run.RunID, r.Len(), len(lines))
				}
				at := random.Perm(len(lines) + 1)
				if !*stepsAll {
					at = at[:min(stepsSome, len(at))]
				}
				var jobs []conformance.Job
				for _, n := range at {
					jobs = append(jobs, conformance.Job{Start: conformance.Start{Messages: toJSON(t, input.Messages), State: input.State},
						Events: conformance.Raw(lines[:n]), Upgrade: true})
				}
				results := client.Play(t, jobs...)
				for i, n := range at {
					stopped++
					c, err := r.From(t.Context(), nil, n, nil)
					if err != nil {
						t.Fatal(err)
					}
					h := c.History()
					got := conformance.Conversation{Messages: toJSON(t, h.Messages), State: h.State}
					if d := conformance.Diff(mask(t, thread, results[i].Conversation), mask(t, thread, got)); d != "" {
						t.Errorf("%s, after event %d of %d: %s", run.RunID, n, len(lines), d)
					}
				}
			}
		})
	}
	t.Logf("stopped behind %d events, seed %d", stopped, seed)
}
