package query

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
)

// searched is the range of start times that was searched. A bound that the request did not set is absent.
type searched struct {
	From time.Time `json:"from,omitzero"`
	// To is excluded from the range.
	To time.Time `json:"to,omitzero"`
}

// runsAnswer is a page of the runs that a filter selects.
type runsAnswer struct {
	Runs []search.Run `json:"runs"`
	// Next is the next page's "after"; empty at the end.
	Next     string   `json:"next,omitempty"`
	Searched searched `json:"searched"`
	// Complete: the index has no further runs.
	Complete  bool              `json:"complete"`
	IndexedTo []record.Position `json:"indexedTo"`
}

// statisticsAnswer is the aggregate of the runs that a filter selects.
type statisticsAnswer struct {
	By       []search.Dimension `json:"by"`
	Measures []search.Measure   `json:"measures"`
	Groups   []statisticsGroup  `json:"groups"`
	Searched searched           `json:"searched"`
	// Complete: there are no more groups than the limit.
	Complete  bool              `json:"complete"`
	IndexedTo []record.Position `json:"indexedTo"`
}

// statisticsGroup is one group of runs.
type statisticsGroup struct {
	// By is the group's value of each dimension. Values is the number of each measure; null if no run of the group has it.
	By     map[search.Dimension]agui.String `json:"by"`
	Values map[search.Measure]*int64        `json:"values"`
}

// searchRuns answers with a page of the tenant's runs.
func (c *call) searchRuns() (*answer, error) {
	q, err := search.ParseQuery(c.Query, c.Tenant, time.Now())
	if err != nil {
		return nil, err
	}
	q.Bounds = c.cfg.Search
	to, err := c.store.IndexedTo(c.R.Context(), c.Tenant)
	if err != nil {
		return nil, err
	}
	page, err := c.store.Search(c.R.Context(), c.Tenant, q)
	if err != nil {
		return nil, err
	}
	a := runsAnswer{Runs: page.Runs, Searched: searched{q.Since, q.Until}, Complete: page.Next == nil, IndexedTo: positions(to)}
	if page.Next != nil {
		if a.Next, err = q.Cursor(c.Query, c.Tenant, *page.Next); err != nil {
			return nil, err
		}
	}
	return &answer{body: document(a)}, nil
}

// statistics answers with groups of the tenant's runs.
func (c *call) statistics() (*answer, error) {
	q, err := search.ParseStatistics(c.Query, time.Now())
	if err != nil {
		return nil, err
	}
	q.Bounds = c.cfg.Search
	to, err := c.store.IndexedTo(c.R.Context(), c.Tenant)
	if err != nil {
		return nil, err
	}
	table, err := c.store.Statistics(c.R.Context(), c.Tenant, q)
	if err != nil {
		return nil, err
	}
	a := statisticsAnswer{
		By: list(q.By), Measures: q.Measures, Groups: make([]statisticsGroup, len(table.Groups)), Searched: searched{q.Since, q.Until},
		Complete: !table.More, IndexedTo: positions(to),
	}
	for i, g := range table.Groups {
		out := statisticsGroup{By: map[search.Dimension]agui.String{}, Values: map[search.Measure]*int64{}}
		for j, d := range q.By {
			out.By[d] = agui.String(g.Keys[j])
		}
		for j, m := range q.Measures {
			out.Values[m] = g.Values[j]
		}
		a.Groups[i] = out
	}
	return &answer{body: document(a)}, nil
}
