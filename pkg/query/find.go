package query

import (
	"cmp"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// maxFindBytes bounds the text to find.
	maxFindBytes = 200
	// findFor is after how long a page of found steps ends.
	findFor = 500 * time.Millisecond
	// findLook and findBytes are about how many steps' events, and bytes of them, are in memory at a time, if the timeline does not hold
	// them.
	findLook  = 256
	findBytes = 4 << 20
	// findBefore is how many steps before a page may have the beginning of a text that deltas make.
	findBefore = 64
)

// findAnswer lists steps of a run that have a text. N is the last step that was searched.
type findAnswer struct {
	stateHead
	Found []int `json:"found"`
	// Next is the "from" of the next page; absent at the run's last step so far.
	Next      *int            `json:"next,omitempty"`
	IndexedTo record.Position `json:"indexedTo"`
}

// find answers with the numbers of steps that have the text of the parameter find.
func (c *call) find() (*answer, error) {
	text := c.Query.Get("find")
	switch {
	case c.Query.Get("at") != "":
		return nil, badRequest("at requests one step, find a page of numbers of steps: use one or the other")
	case len(text) > maxFindBytes:
		return nil, c.badParam("find", "a text of up to 200 bytes")
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	ref, err := c.stepRef("from", "start")
	if err != nil {
		return nil, err
	}
	v, err := c.readInTime()
	if err != nil {
		return nil, err
	}
	run := cmp.Or(c.runID, graphOf(v.runs).Tip())
	a := findAnswer{stateHead: stateHead{ThreadID: c.threadID, RunID: run}, Found: []int{}, IndexedTo: v.indexedTo}
	err = c.stepThrough(v, run, func(*timeline.Reader) bool { return false }, func(s stepping) error {
		from, err := ref.find(s)
		if err != nil {
			return err
		}
		a.Status, a.badges, a.Total, a.LateError = s.row.Status, badgesOf(s.row), s.Len(), s.row.LateError
		if err := a.search(s, timeline.NewFinder(text), from, limit, findFor); err != nil {
			return err
		}
		if next := a.N + 1; next <= s.Len() {
			a.Next = &next
		}
		return nil
	})
	return &answer{body: document(a)}, err
}

// search adds the steps from a step on, until there are enough, or it has taken long enough.
func (a *findAnswer) search(s stepping, f *timeline.Finder, from, limit int, long time.Duration) error {
	until := time.Now().Add(long)
	var read map[int64][]byte
	var counted int64
	for n := max(0, from-findBefore); n <= s.Len(); n++ {
		if err := s.c.R.Context().Err(); err != nil {
			return err
		}
		step := s.Step(n)
		value, held := step.Value, n == 0 || step.Value != nil
		if !held {
			value, held = read[step.Offset]
		}
		if !held {
			_ = s.c.load.take(-counted) // a release never fails
			var err error
			last := s.Step(min(n+findLook-1, s.Len()))
			if read, counted, err = s.values([2]int64{step.Offset, last.Offset + 1}, findBytes); err != nil {
				return err
			}
			value = read[step.Offset]
		}
		if f.Next(value) && n >= from {
			a.Found = append(a.Found, n)
		}
		if a.N = n; n >= from && (len(a.Found) >= limit || time.Now().After(until)) {
			return nil
		}
	}
	return nil
}
