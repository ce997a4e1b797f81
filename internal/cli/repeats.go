package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

// repeats counts published events whose numbers their run had before, so that Skein dropped them: those that are equal to the events
// that it has, but for white space, and the others.
type repeats struct{ Repeated, Different int64 }

// knownBefore reports whether the index knows the run, with an earlier event than those published. It does not wait for what was just
// published.
func knownBefore(ctx context.Context, c *client.Client, p published) (bool, error) {
	body, err := c.Get(ctx, client.RunPath(p.ThreadID, p.RunID), url.Values{"fresh": {"no"}})
	var run struct{ Raw record.Raw }
	if err == nil {
		err = json.Unmarshal(body, &run)
	}
	if err != nil {
		if client.IsNotFound(err) {
			err = nil
		}
		return false, err
	}
	first := p.FirstOffset
	if input, err := record.ParsePosition(p.InputPosition); err == nil {
		first = input.Offset
	}
	return run.Raw.First < first, nil
}

// countRepeats waits until the index has what was published, and compares it with the earlier raw events of its run. The run is the one
// with the published id, or a later one with the same client run id, whose id ends with its number.
func countRepeats(ctx context.Context, c *client.Client, p published) (*repeats, error) {
	if known, err := knownBefore(ctx, c, p); !known || err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, indexedWithin)
	defer stop()
	for n := 1; ; {
		id := p.RunID
		if n > 1 {
			id = fmt.Sprintf("%s~%d", p.RunID, n)
		}
		found := comparison{p: p, seed: maphash.MakeSeed(), sums: map[int64]uint64{}}
		query := url.Values{"all": {"true"}, "atLeast": {fmt.Sprintf("%d:%d", p.Partition, p.LastOffset)},
			"to": {fmt.Sprintf("%d:%d", p.Partition, p.LastOffset+1)}}
		err := c.Copy(ctx, client.RunPath(p.ThreadID, id)+"/events", query, client.TypeSequenced, &byLine{each: found.add})
		var refused *client.Error
		switch {
		case errors.As(err, &refused) && refused.Status == http.StatusTooEarly:
			_ = pause(ctx, indexedAgain) // the next request returns the error
			continue
		case errors.As(err, &refused) && refused.Status == http.StatusNotFound && n > 1:
			return &repeats{}, nil
		case err != nil:
			return nil, err
		case found.any:
			return &found.repeats, nil
		}
		n++
	}
}

// comparison compares the events of a run that were published last with those before them.
type comparison struct {
	repeats
	p    published
	seed maphash.Seed
	// sums has the hash of the first event of each number; last is the highest number.
	sums map[int64]uint64
	last int64
	any  bool // the run has events of the publication
}

// add takes a line of the run's raw events.
func (r *comparison) add(text []byte) error {
	var e struct {
		Position string
		Kind     record.Kind
		Seq      *int64
		Event    json.RawMessage
		Bytes    json.RawMessage
	}
	if err := decode(text, "raw event", &e); err != nil {
		return err
	}
	at, err := record.ParsePosition(e.Position)
	if err != nil {
		return fmt.Errorf("decoding raw event: %w", err)
	}
	if e.Kind != record.KindEvent || e.Seq == nil {
		return nil
	}
	sum := maphash.Bytes(r.seed, append(e.Event, e.Bytes...))
	first, seen := r.sums[*e.Seq]
	switch {
	case at.Offset < r.p.FirstOffset:
		if !seen {
			r.sums[*e.Seq], r.last = sum, max(r.last, *e.Seq)
		}
		return nil
	case seen && first == sum:
		r.Repeated++
	case seen || len(r.sums) > 0 && *e.Seq < r.last: // a number that was left out came too late
		r.Different++
	}
	r.any = true
	return nil
}
