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
	// findFor bounds the time spent on one page of found steps.
	findFor = 500 * time.Millisecond
	// findLook is how many steps' events are in memory at a time, if the timeline does not hold them.
	findLook = 256
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
		if err := a.search(s, timeline.NewFinder(text), from, limit); err != nil {
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
func (a *findAnswer) search(s stepping, f *timeline.Finder, from, limit int) error {
	until := time.Now().Add(findFor)
	for part := max(0, from-findBefore); part <= s.Len(); part += findLook {
		if err := s.c.R.Context().Err(); err != nil {
			return err
		}
		last := min(part+findLook-1, s.Len())
		var read map[int64][]byte
		var counted int64
		if first := max(part, 1); first <= last && s.Step(first).Value == nil {
			var err error
			if read, counted, err = s.values([2]int64{s.Step(first).Offset, s.Step(last).Offset + 1}); err != nil {
				return err
			}
		}
		for n := part; n <= last; n++ {
			step := s.Step(n)
			value := step.Value
			if value == nil {
				value = read[step.Offset]
			}
			if f.Next(value) && n >= from {
				a.Found = append(a.Found, n)
			}
			if a.N = n; n >= from && (len(a.Found) >= limit || time.Now().After(until)) {
				return nil
			}
		}
		_ = s.c.load.take(-counted) // a release never fails
	}
	return nil
}
