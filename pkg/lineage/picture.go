package lineage

import "slices"

// Picture is the layout that every drawing of a thread uses. Rows go from the oldest run of a tree
// down, as a conversation grows. Branches are lanes: a run's side branches, the oldest first, stand
// right below it, one lane to the right and each with all that follows it; then its own branch
// goes on in its own lane. So a thread needs as many lanes as its branches are nested, not as many
// as it has. Every run is in exactly one row.
type Picture struct {
	Rows []Row `json:"rows"`
	// Lanes is the number of lanes that the rows use; a row of bundled branches counts as one.
	Lanes int `json:"lanes"`

	g *Graph
}

// RowKind says what a row shows.
type RowKind string

// The kinds of rows.
const (
	// RowRun is one run.
	RowRun RowKind = "run"
	// RowFold is a straight stretch of a branch.
	RowFold RowKind = "fold"
	// RowBundle is all side branches of a run that lie too deep to be drawn.
	RowBundle RowKind = "bundle"
)

// Row is one line of a picture.
type Row struct {
	Kind RowKind `json:"kind"`
	// Lane is where its node stands, from 0.
	Lane int `json:"lane"`
	// From is the lane that the node follows: Lane itself where it goes on in its lane, Lane-1
	// where a branch parts, -1 for a root.
	From int `json:"from"`
	// Down says that its lane goes on below it, Through are the other lanes that do, in order.
	// Where From is another lane and not in Through, that lane ends here.
	Down    bool  `json:"down"`
	Through []int `json:"through"`
	// RunID is the run; of a fold the first one and LastRunID the last; of a bundle the run whose
	// side branches it holds.
	RunID     string `json:"runId"`
	LastRunID string `json:"lastRunId,omitempty"`
	// Runs and Branches are how many the row stands for; Branches is 0 unless it is a bundle.
	Runs     int `json:"runs"`
	Branches int `json:"branches,omitempty"`
	// Tip says that it is the tip of the thread.
	Tip    bool    `json:"tip,omitempty"`
	Badges []Badge `json:"badges,omitempty"`
}

// The defaults of a picture.
const (
	DefaultMaxLanes = 12
	DefaultMinFold  = 3
)

// PictureOptions choose what is drawn. The zero value has the defaults.
type PictureOptions struct {
	// MaxLanes is the number of lanes before branches are bundled.
	MaxLanes int
	// MinFold is the length from which a straight stretch folds to one row; below 0 nothing does.
	MinFold int
	// Keep are runs that always have a row of their own, unless they lie in a bundle.
	Keep []string
}

// Picture lays the graph out.
func (g *Graph) Picture(o PictureOptions) *Picture {
	if o.MaxLanes <= 0 {
		o.MaxLanes = DefaultMaxLanes
	}
	d := &drawing{Picture: &Picture{Rows: []Row{}, g: g}, g: g, o: o, keep: make(map[int]bool)}
	if o.MinFold == 0 {
		d.o.MinFold = DefaultMinFold
	}
	for _, id := range o.Keep {
		if i, ok := g.index[id]; ok {
			d.keep[i] = true
		}
	}
	d.countBelow()
	for _, root := range g.roots() {
		d.tree(root)
	}
	return d.Picture
}

// drawing is the making of a picture.
type drawing struct {
	*Picture
	g    *Graph
	o    PictureOptions
	keep map[int]bool
	// runs and branches count the subtree below and with each run; a run's own branch counts
	// from where it starts.
	runs, branches []int
	// stack holds the branches being drawn, one a lane.
	stack []lane
}

// lane is a branch that is being drawn: run is the next of it, or -1 at its end. sides are the side
// branches, still to be drawn, of the run before.
type lane struct {
	run   int
	sides []int
}

func (l *lane) alive() bool { return l.run >= 0 || len(l.sides) > 0 }

func (d *drawing) countBelow() {
	d.runs, d.branches = make([]int, d.g.Len()), make([]int, d.g.Len())
	for _, i := range slices.Backward(d.g.topo) {
		d.runs[i]++
		if d.g.starts(i) {
			d.branches[i]++
		}
		if p := d.g.parent[i]; p >= 0 {
			d.runs[p] += d.runs[i]
			d.branches[p] += d.branches[i]
		}
	}
}

func (d *drawing) tree(root int) {
	d.stack = append(d.stack[:0], lane{run: root})
	for from := -1; len(d.stack) > 0; {
		top := len(d.stack) - 1
		l := &d.stack[top]
		switch {
		case len(l.sides) > 0 && top+1 == d.o.MaxLanes:
			sides := l.sides
			l.sides = nil
			d.bundle(sides)
		case len(l.sides) > 0:
			side := l.sides[0]
			l.sides = l.sides[1:]
			d.stack = append(d.stack, lane{run: side})
			from = top
		case l.run < 0:
			d.stack = d.stack[:top]
		default:
			d.step(l, from)
			from = top
		}
		if n := len(d.stack); n > 0 && n-1 < from {
			from = n - 1
		}
	}
}

// step draws the next run of a branch, or the straight stretch that begins with it.
func (d *drawing) step(l *lane, from int) {
	i := l.run
	if stretch := d.stretch(i); len(stretch) > 0 {
		last := stretch[len(stretch)-1]
		l.run = d.g.next[last]
		d.row(Row{
			Kind: RowFold, Runs: len(stretch), RunID: d.g.runs[i].ID, LastRunID: d.g.runs[last].ID,
			Badges: d.counted(stretch),
		}, from)
		return
	}
	l.run = d.g.next[i]
	l.sides = d.sidesOf(i)
	d.row(Row{Kind: RowRun, Runs: 1, RunID: d.g.runs[i].ID, Tip: i == d.g.tip, Badges: d.g.badges(i)}, from)
}

// stretch returns the runs from i on that fold to one row, if they do. What is too short to fold is
// looked at again for each of its runs, which is no more than MinFold times.
func (d *drawing) stretch(i int) []int {
	if d.o.MinFold < 0 {
		return nil
	}
	var out []int
	for ; d.plain(i); i = d.g.next[i] {
		out = append(out, i)
	}
	if len(out) < d.o.MinFold {
		return nil
	}
	return out
}

// plain reports whether a run may be folded: it has one child, on its own branch, does not start
// one, and nothing about it asks for a row.
func (d *drawing) plain(i int) bool {
	_, spawned := d.g.spawns[i]
	return !d.g.starts(i) && d.g.next[i] >= 0 && len(d.g.children[i]) == 1 &&
		!spawned && !d.keep[i] && !d.g.runs[i].Open()
}

func (d *drawing) sidesOf(i int) []int {
	var out []int
	for _, c := range d.g.children[i] {
		if c != d.g.next[i] {
			out = append(out, c)
		}
	}
	return out
}

func (d *drawing) bundle(sides []int) {
	r := Row{Kind: RowBundle, RunID: d.g.runs[d.g.parent[sides[0]]].ID}
	for _, i := range sides {
		r.Runs += d.runs[i]
		r.Branches += d.branches[i]
	}
	top := len(d.stack) - 1
	d.stack = append(d.stack, lane{run: -1}) // the bundle's own lane, for its row only
	d.row(r, top)
	d.stack = d.stack[:top+1]
}

// row appends a row in the lane on top of the stack.
func (d *drawing) row(r Row, from int) {
	top := len(d.stack) - 1
	r.Lane, r.From, r.Down = top, from, d.stack[top].alive()
	r.Through = []int{}
	for n := range d.stack[:top] {
		if d.stack[n].alive() {
			r.Through = append(r.Through, n)
		}
	}
	d.Lanes = max(d.Lanes, top+1)
	d.Rows = append(d.Rows, r)
}

// counted returns the badges of several runs, without those that say how a parent was found: nearly
// every run has one of them.
func (d *drawing) counted(list []int) []Badge {
	var out []Badge
	for _, i := range list {
		for _, b := range d.g.badges(i) {
			if b.Name == BadgeContent || b.Name == BadgeLatest {
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
