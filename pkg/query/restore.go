package query

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// restored is the history of one run.
type restored struct {
	lineage.History
	// run is the row that was restored: a newer one than was asked with where the run is open
	// and went on meanwhile.
	run store.Run
	// inputMessages are the messages of the run's input that its record has itself.
	inputMessages []agui.Message
	// own are the messages in the records of all runs whose contents are in the history.
	own map[string][]agui.Message
	// badges are the run's own, and those of every run whose contents are in its history.
	badges badges
}

// errBehind says that rows do not fit together yet: what is missing is being written.
var errBehind = errors.New("the index is behind")

// restoreOrTip reads the thread and restores the run in the path or, where it names none, the thread's tip.
func (c *call) restoreOrTip() (view, *lineage.Graph, restored, error) {
	v, err := c.readThread()
	if err != nil {
		return view{}, nil, restored{}, err
	}
	graph := graphOf(v.runs)
	h, err := c.restore(v.runs, cmp.Or(c.runID, graph.Tip()))
	return v, graph, h, err
}

// restore puts the history of a run together from the contents of its base chain: one read for all
// that are in the store, one more for the record of a run that is still open. Where a row is newer
// than its contents or older than its record, it is read again until they fit.
func (c *call) restore(runs []store.Run, id string) (restored, error) {
	deadline := time.Now().Add(c.cfg.Wait)
	for look := c.cfg.Poll; ; look = min(2*look, maxLook) {
		r, err := c.restoreOnce(runs, id)
		if !errors.Is(err, errBehind) {
			return r, err
		}
		if time.Now().After(deadline) {
			return restored{}, later(fmt.Sprintf("run %q is indexed in part; try again", id))
		}
		c.load.free()
		if err := c.sleep(look); err != nil {
			return restored{}, err
		}
		if runs, err = c.store.Thread(c.R.Context(), c.Tenant, c.threadID); err != nil {
			return restored{}, err
		}
	}
}

func (c *call) restoreOnce(runs []store.Run, id string) (restored, error) {
	rows := make(map[string]store.Run, len(runs))
	for _, r := range runs {
		rows[r.RunID] = r
	}
	run, ok := rows[id]
	if !ok {
		return restored{}, store.ErrNotFound
	}
	chain, err := lineage.BaseChain(id, func(id string) (string, bool) {
		r, ok := rows[id]
		return r.Base, ok
	})
	switch {
	case errors.Is(err, lineage.ErrMissingRun):
		return restored{}, fmt.Errorf("%w: %w", errBehind, err)
	case err != nil:
		return restored{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	c.metrics.restored.Observe(float64(len(chain)))
	of := make([]store.Run, len(chain))
	for i, id := range chain {
		of[i] = rows[id]
	}
	contents, err := c.store.Contents(c.R.Context(), c.Tenant, c.threadID, of)
	if err != nil {
		return restored{}, err
	}
	out := restored{run: run, badges: badgesOf(run), own: make(map[string][]agui.Message, len(chain))}
	parts := make([]lineage.Content, len(chain))
	for i, id := range chain {
		row := rows[id]
		out.badges.Truncated = out.badges.Truncated || row.Truncated
		out.badges.RawLost = out.badges.RawLost || row.RawLost
		held, ok := contents[id]
		if row.Status == record.StatusRunning {
			held, err = c.openContents(row)
			if err != nil {
				return restored{}, err
			}
		} else if !ok {
			return restored{}, fmt.Errorf("%w: contents of run %q are missing, or of another record", errBehind, id)
		}
		out.inputMessages = held.InputMessages // of the last one, the run itself
		out.own[id] = held.Messages
		parts[i] = lineage.Content{
			RunID: id, Base: row.Base, Messages: held.Messages, Layout: row.Layout, State: held.State,
		}
	}
	if out.History, err = lineage.Restore(parts...); err != nil {
		return restored{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	return out, nil
}

// openContents reads what an open run's record holds; the store has the row of it alone.
func (c *call) openContents(row store.Run) (store.Content, error) {
	r, err := c.recordOf(row)
	if errors.Is(err, ErrRecordGone) {
		return store.Content{}, fmt.Errorf("%w: the record of open run %q: %w", errBehind, row.RunID, err)
	}
	if err != nil {
		return store.Content{}, err
	}
	return store.Content{Messages: r.Messages, InputMessages: r.InputMessages, State: r.State}, nil
}

// recordOf reads the record that a row was made from.
func (c *call) recordOf(row store.Run) (*record.Run, error) {
	value, err := c.records.Record(c.R.Context(), row.Raw.Partition, row.Version)
	if err != nil {
		return nil, fmt.Errorf("reading record of run: %w", err)
	}
	r, err := record.DecodeRun(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	// The offset alone leads here. In a topic that was created again it may be another run's, perhaps
	// another tenant's, which must not be returned.
	if r.Tenant != c.Tenant || r.ThreadID != row.ThreadID || r.RunID != row.RunID || r.Status != row.Status {
		return nil, fmt.Errorf("%w: the record at %d:%d is not that of run %q", errBroken, row.Raw.Partition, row.Version, row.RunID)
	}
	return r, nil
}
