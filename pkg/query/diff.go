package query

import (
	"errors"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// diffAnswer is the difference between the histories of two runs.
type diffAnswer struct {
	ThreadID string `json:"threadId"`
	// From is absent if a root is compared with the empty history from which it started.
	From *diffSide `json:"from,omitempty"`
	To   diffSide  `json:"to"`
	// CommonAncestor is the last run that both chains contain. It is one of the two runs if that run is on the other's
	// chain, and absent for runs of different trees.
	CommonAncestor string `json:"commonAncestor,omitempty"`
	// Same: the histories do not differ.
	Same bool `json:"same"`
	lineage.Difference
	IndexedTo record.Position `json:"indexedTo"`
}

// diffSide is one of the two runs.
type diffSide struct {
	RunID  string        `json:"runId"`
	Status record.Status `json:"status"`
	Basis  lineage.Basis `json:"basis"`
	badges
}

// diff compares two runs of the thread. The default of ?to= is the tip that started last. The default of ?from= is the
// parent of the other run, so that the answer shows what that run changed.
func (c *call) diff() (*answer, error) {
	from, err := c.runParam("from")
	if err != nil {
		return nil, err
	}
	to, err := c.runParam("to")
	if err != nil {
		return nil, err
	}
	v, err := c.read(c.store.Thread)
	if err != nil {
		return nil, err
	}
	graph := graphOf(v.runs)
	if to == "" {
		to = graph.Tip()
	}
	if from == "" {
		from = graph.Parent(to)
	}
	a := diffAnswer{ThreadID: c.threadID, CommonAncestor: graph.CommonAncestor(from, to), IndexedTo: v.indexedTo}
	right, err := c.side(graph, v.runs, to, &a.To)
	if err != nil {
		return nil, err
	}
	var left lineage.History
	if from != "" {
		a.From = new(diffSide)
		if left, err = c.side(graph, v.runs, from, a.From); err != nil {
			return nil, err
		}
	}
	if err := c.weigh(right.Messages, right.State, left.State); err != nil {
		return nil, err
	}
	if a.Difference, err = lineage.Diff(left, right); err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	a.Same = a.Empty()
	return &answer{status: v.status, body: document(a)}, nil
}

// runParam reads a run id from the query. It returns "" if the parameter is absent.
func (c *call) runParam(name string) (string, error) {
	id := c.Query.Get(name)
	if !c.Query.Has(name) {
		return "", nil
	}
	if err := record.ValidateID(id); err != nil {
		return "", badRequest("%s: %v", name, err)
	}
	return id, nil
}

// missingRunError is the id of a run that a comparison names and the thread lacks.
type missingRunError string

// Error implements error.
func (id missingRunError) Error() string {
	return fmt.Sprintf("there is no run %q in the thread", string(id))
}

// Unwrap says what is missing.
func (missingRunError) Unwrap() error { return store.ErrNotFound }

// side restores one of the two runs.
func (c *call) side(graph *lineage.Graph, runs []store.Run, id string, into *diffSide) (lineage.History, error) {
	h, err := c.restore(c.R.Context(), runs, id)
	if errors.Is(err, store.ErrNotFound) && !slices.ContainsFunc(runs, func(r store.Run) bool { return r.RunID == id }) {
		err = missingRunError(id)
	}
	*into = diffSide{RunID: id, Status: h.run.Status, Basis: graph.Basis(id), badges: h.badges}
	return h.History, err
}
