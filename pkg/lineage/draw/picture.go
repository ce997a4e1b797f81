package draw

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/lineage"
)

// Picture is the layout that every drawing of a thread uses: the terminal, format=text and the page. Rows are runs by
// start, the oldest on top, so that a new run adds a row and moves none. A branch keeps one lane: the lowest that is free
// from the row below its fork to its last run. Every run is in exactly one row. docs/adr/015-lanes.md has the reasons.
type Picture struct {
	Rows []Row `json:"rows"`
	// Lanes is the number of lanes that the rows use.
	Lanes int `json:"lanes"`

	g     *lineage.Graph
	rowOf []int
}

// RowKind is what a row shows.
type RowKind string

// The kinds of rows.
const (
	// RowRun is one run.
	RowRun RowKind = "run"
	// RowFold is a straight stretch of a branch.
	RowFold RowKind = "fold"
	// RowFan is several side branches of one run, each of a single plain run.
	RowFan RowKind = "fan"
	// RowBundle is neighbouring rows of branches for which no lane is left.
	RowBundle RowKind = "bundle"
)

// Row is one line of a picture.
type Row struct {
	Kind RowKind `json:"kind"`
	// Lane is the lane of its node, from 0.
	Lane int `json:"lane"`
	// Branch is the number of the branch in order of appearance, which determines its colour. A fan counts as one branch. So do all
	// rows in the lane of the bundles, with the number -1.
	Branch int `json:"branch"`
	// Above is the row that this one continues, in its own lane or from a fork; -1 for a root. In the lane of the bundles (Branch is
	// -1) each row continues the one before, whatever its runs continue.
	Above int `json:"above"`
	// Down means that the row's lane continues below. Through are the other lanes that pass the row. Forks are the lanes that begin at
	// its node and are visible from the next row on. Both lists are in order.
	Down    bool  `json:"down"`
	Through []int `json:"through"`
	Forks   []int `json:"forks"`
	// RunID is the row's first run and LastRunID, if it has several, the last.
	RunID     string `json:"runId"`
	LastRunID string `json:"lastRunId,omitempty"`
	// Runs and Branches are how many the row has; Branches is 0 unless it is a fan or a bundle.
	Runs     int `json:"runs"`
	Branches int `json:"branches,omitempty"`
	// Running, Waiting and Failed count the runs of a bundle that are open, that ended with an interrupt and that no run continues,
	// and that ended with an error.
	Running int `json:"running,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	Failed  int `json:"failed,omitempty"`
	// Tip means that the row's run is the tip of the thread.
	Tip    bool    `json:"tip,omitempty"`
	Badges []Badge `json:"badges,omitempty"`

	// passing are the branches of Through.
	passing []int
	runs    []int
	span    *span
}

// The defaults of a picture.
const (
	DefaultMaxLanes = 12
	DefaultMinFold  = 3
	DefaultMaxSides = 4
)

// LanesFor returns how many lanes leave space for text on a screen with width columns. A width of 0 means no limit.
func LanesFor(width int) int {
	if width == 0 {
		return DefaultMaxLanes
	}
	return max(2, min(DefaultMaxLanes, width/6))
}

// Options choose what is drawn. The zero value has the defaults.
type Options struct {
	// MaxLanes limits the lanes. Branches beyond it are bundled, in the last lane.
	MaxLanes int
	// MinFold is the length from which a straight stretch folds into one row; below 0 nothing folds. Folding changes no lane.
	MinFold int
	// MaxSides limits the plain side branches of one run; if there are more, they become a fan. Below 0 they never do.
	MaxSides int
	// Keep are runs that always have a row of their own, unless they lie in a bundle.
	Keep []string
}

// New lays a graph out.
func New(g *lineage.Graph, o Options) *Picture {
	o.MaxLanes = cmp.Or(max(o.MaxLanes, 0), DefaultMaxLanes)
	o.MinFold = cmp.Or(o.MinFold, DefaultMinFold)
	o.MaxSides = cmp.Or(o.MaxSides, DefaultMaxSides)
	d := &drawing{
		Picture: &Picture{Rows: []Row{}, g: g, rowOf: make([]int, g.Len())},
		o:       o, tip: g.Find(g.Tip()), keep: make(map[int]bool), spawners: make(map[int]bool),
	}
	for _, id := range o.Keep {
		d.keep[g.Find(id)] = true
	}
	for _, s := range g.SpawnOf {
		d.spawners[g.Find(s.Known)] = true
	}
	d.appendRuns()
	if o.MinFold > 0 {
		d.fold()
	}
	d.assignLanes()
	if d.Lanes > o.MaxLanes {
		d.bundle()
	}
	d.connect()
	for n := range d.Rows {
		d.describe(&d.Rows[n])
	}
	return d.Picture
}

// Row returns the index of the row that shows a run, or -1.
func (p *Picture) Row(id string) int {
	if i := p.g.Find(id); i >= 0 {
		return p.rowOf[i]
	}
	return -1
}

// RunsOf returns the runs of a row, in order.
func (p *Picture) RunsOf(row int) []string {
	var ids []string
	for _, i := range p.Rows[row].runs {
		ids = append(ids, p.g.Runs()[i].ID)
	}
	return ids
}

// drawing is the state of laying out a picture.
type drawing struct {
	*Picture
	o   Options
	tip int // -1: not in the graph
	// keep are the runs of Options.Keep, spawners the runs that spawned others.
	keep, spawners map[int]bool
	spans          []*span
}

// span is a branch as it is drawn. fork is the row from which it forks, or -1 for a root; first and last are its own rows.
type span struct {
	branch, lane      int
	fork, first, last int
}

// low is the first row in which the branch needs its lane.
func (s *span) low() int {
	if s.fork < 0 {
		return s.first
	}
	return s.fork + 1
}

// appendRuns makes a row for each run, and one for each fan at the place of the fan's first run.
func (d *drawing) appendRuns() {
	fanned := d.fans()
	fans := make(map[int]int) // row of the fan, by the run from which it forks
	spans := make([]*span, d.g.Len())
	for _, i := range order(d.g) {
		p := d.g.ParentOf[i]
		if fanned[i] {
			if n, ok := fans[p]; ok {
				d.Rows[n].runs = append(d.Rows[n].runs, i)
				d.rowOf[i] = n
				continue
			}
			fans[p] = len(d.Rows)
		}
		s := spans[i]
		if s == nil {
			s = &span{branch: len(d.spans), fork: -1, first: len(d.Rows)}
			d.spans = append(d.spans, s)
		}
		row := Row{Kind: RowRun, Above: -1, runs: []int{i}, span: s}
		if fanned[i] {
			row.Kind = RowFan
		}
		if p >= 0 {
			row.Above = d.rowOf[p]
			if d.g.Starts(i) {
				s.fork = row.Above
			}
		}
		if next := d.g.NextOf[i]; next >= 0 {
			spans[next] = s
		}
		s.last = len(d.Rows)
		d.rowOf[i] = len(d.Rows)
		d.Rows = append(d.Rows, row)
	}
}

// order lists the runs by start. A run whose parent started later comes right after that parent; sound data has no such run.
func order(g *lineage.Graph) []int {
	out := make([]int, 0, g.Len())
	placed := make([]bool, g.Len())
	late := make(map[int][]int)
	var place func(i int)
	place = func(i int) {
		out = append(out, i)
		placed[i] = true
		for _, c := range late[i] {
			place(c)
		}
	}
	for i := range g.Len() {
		if p := g.ParentOf[i]; p >= 0 && !placed[p] {
			late[p] = append(late[p], i)
			continue
		}
		place(i)
	}
	return out
}

// fans returns the runs that are in a fan.
func (d *drawing) fans() map[int]bool {
	out := make(map[int]bool)
	if d.o.MaxSides < 0 {
		return out
	}
	for i, children := range d.g.ChildrenOf {
		if len(children) <= d.o.MaxSides {
			continue
		}
		var sides []int
		for _, c := range children {
			if c != d.g.NextOf[i] && len(d.g.ChildrenOf[c]) == 0 && d.plain(c) {
				sides = append(sides, c)
			}
		}
		if len(sides) > d.o.MaxSides {
			for _, c := range sides {
				out[c] = true
			}
		}
	}
	return out
}

// plain reports whether a run needs no row of its own.
func (d *drawing) plain(i int) bool {
	r := &d.g.Runs()[i]
	_, spawned := d.g.SpawnOf[i]
	return !d.keep[i] && i != d.tip && !spawned && !d.spawners[i] && !r.Open() &&
		r.Status != lineage.StatusError && r.Status != lineage.StatusInterrupted && r.Status != lineage.StatusAbandoned &&
		!r.Synthetic && !r.Truncated && !r.RawLost
}

// foldable reports whether a row may be part of a straight stretch.
func (d *drawing) foldable(r *Row) bool {
	i := r.runs[0]
	return r.Kind == RowRun && d.g.ParentOf[i] >= 0 && d.g.NextOf[i] >= 0 && len(d.g.ChildrenOf[i]) == 1 && d.plain(i)
}

// fold merges neighbouring rows that are a straight stretch of one branch.
func (d *drawing) fold() {
	d.merge(func(n int) int {
		end := n
		for end < len(d.Rows) && d.Rows[end].span == d.Rows[n].span && d.foldable(&d.Rows[end]) {
			end++
		}
		if end-n < d.o.MinFold {
			return 1
		}
		d.Rows[n].Kind = RowFold
		return end - n
	})
}

// bundle merges neighbouring rows whose branches have no lane. All rows without a lane become one grey branch in the last lane; one
// without such a neighbour keeps its kind.
func (d *drawing) bundle() {
	lane := d.o.MaxLanes - 1
	bundles := &span{branch: -1, lane: lane, fork: -1}
	branches := make(map[int]bool)
	d.merge(func(n int) int {
		end := n
		clear(branches)
		for end < len(d.Rows) && d.Rows[end].span.lane >= lane {
			branches[d.Rows[end].span.branch] = true
			end++
		}
		if end-n < 2 {
			return 1
		}
		r := &d.Rows[n]
		r.Branches = len(branches)
		for _, fan := range d.Rows[n:end] {
			if fan.Kind == RowFan {
				r.Branches += len(fan.runs) - 1
			}
		}
		r.Kind = RowBundle
		return end - n
	})
	last := -1
	for n := range d.Rows {
		r := &d.Rows[n]
		if r.span.lane < lane {
			continue
		}
		if last < 0 {
			bundles.first, bundles.fork = n, r.Above
		} else {
			r.Above = last
		}
		r.span, bundles.last, last = bundles, n, n
	}
	d.spans = append(slices.DeleteFunc(d.spans, func(s *span) bool { return s.lane >= lane }), bundles)
	d.Lanes = d.o.MaxLanes
}

// merge merges each group of neighbouring rows into one row. group returns the size of the group that begins at row n.
func (d *drawing) merge(group func(n int) int) {
	to := make([]int, len(d.Rows))
	rows := make([]Row, 0, len(d.Rows))
	for n := 0; n < len(d.Rows); {
		r, end := &d.Rows[n], n
		for size := group(n); end < n+size; end++ {
			to[end] = len(rows)
			if end > n {
				r.runs = append(r.runs, d.Rows[end].runs...)
			}
		}
		rows = append(rows, *r)
		n = end
	}
	for n := range rows {
		if rows[n].Above >= 0 {
			rows[n].Above = to[rows[n].Above]
		}
		for _, i := range rows[n].runs {
			d.rowOf[i] = n
		}
	}
	for _, s := range d.spans {
		if s.fork >= 0 {
			s.fork = to[s.fork]
		}
		s.first, s.last = to[s.first], to[s.last]
	}
	d.Rows = rows
}

// assignLanes gives each branch the lowest lane that is free over all its rows.
func (d *drawing) assignLanes() {
	order := slices.Clone(d.spans)
	slices.SortStableFunc(order, func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.low(), b.low()), cmp.Compare(a.first, b.first))
	})
	var taken []int // by lane: the last row in which it is taken
	for _, s := range order {
		s.lane = slices.IndexFunc(taken, func(last int) bool { return last < s.low() })
		if s.lane < 0 {
			s.lane = len(taken)
			taken = append(taken, 0)
		}
		taken[s.lane] = s.last
	}
	d.Lanes = len(taken)
}

// connect fills in which lanes pass and leave each row.
func (d *drawing) connect() {
	slices.SortFunc(d.spans, func(a, b *span) int { return cmp.Compare(a.lane, b.lane) })
	for n := range d.Rows {
		r := &d.Rows[n]
		r.Lane, r.Branch, r.Down = r.span.lane, r.span.branch, n < r.span.last
		r.Through, r.Forks = []int{}, []int{}
	}
	for _, s := range d.spans {
		for n := s.low(); n < s.last; n++ {
			if r := &d.Rows[n]; r.span != s {
				r.Through, r.passing = append(r.Through, s.lane), append(r.passing, s.branch)
			}
		}
		if s.fork < 0 {
			continue
		}
		switch r := &d.Rows[s.fork]; {
		case r.Lane == s.lane:
			r.Down = true
		default:
			r.Forks = append(r.Forks, s.lane)
		}
	}
}

// describe fills in the description of a row's runs.
func (d *drawing) describe(r *Row) {
	first, last := r.runs[0], r.runs[len(r.runs)-1]
	r.RunID, r.Runs = d.g.Runs()[first].ID, len(r.runs)
	if r.Kind == RowRun {
		r.Tip, r.Badges = first == d.tip, badges(d.g, first)
		return
	}
	r.LastRunID, r.Badges = d.g.Runs()[last].ID, d.counted(r.runs)
	switch r.Kind {
	case RowFan:
		r.Branches = len(r.runs)
	case RowBundle:
		for _, i := range r.runs {
			switch run := &d.g.Runs()[i]; {
			case run.Open():
				r.Running++
			case run.Status == lineage.StatusError:
				r.Failed++
			case run.Status == lineage.StatusInterrupted && len(d.g.ChildrenOf[i]) == 0:
				r.Waiting++
			}
		}
	}
}

// counted returns the badges of several runs with their numbers, without BadgeOpen and without BadgeContent and BadgeLatest, which
// nearly every run has.
func (d *drawing) counted(list []int) []Badge {
	var out []Badge
	for _, i := range list {
		for _, b := range badges(d.g, i) {
			if b.Name == BadgeContent || b.Name == BadgeLatest || b.Name == BadgeOpen {
				continue
			}
			n := slices.IndexFunc(out, func(o Badge) bool { return o.Name == b.Name })
			if n < 0 {
				n = len(out)
				out = append(out, Badge{Name: b.Name})
			}
			out[n].Count++
		}
	}
	return out
}
