package query

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/lineage/draw"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// lineageAnswer is the forest of a thread, or a part of it.
type lineageAnswer struct {
	ThreadID string              `json:"threadId"`
	Runs     []client.LineageRun `json:"runs"` // by start
	Branches []lineage.Branch    `json:"branches"`
	// Spawns are the edges of runs that named a parent which did not exist when they started. Chains leave them out.
	Spawns []lineage.Spawn `json:"spawns"`
	// Tips are those of Runs that have no children, by start. TipRunID is the last tip of the whole thread, even if Runs
	// lacks it.
	Tips     []string `json:"tips"`
	TipRunID string   `json:"tipRunId"`
	// Picture is the layout of lanes that all drawings of the thread share.
	Picture   *draw.Picture   `json:"picture"`
	IndexedTo record.Position `json:"indexedTo"`
}

func newLineageRun(r store.Run) client.LineageRun {
	return client.LineageRun{
		RunID: r.RunID, ClientRunID: r.ClientRunID,
		Lineage: r.Lineage, Rewrote: r.Rewrote,
		Status: r.Status, Agent: r.Agent, MessageCount: r.MessageCount, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		First:      record.Position{Partition: r.Raw.Partition, Offset: r.Raw.First},
		DurationMs: r.Stats.Duration,
		Stopped:    r.Facts.CancelledBy == store.CancelledBySkein || r.Run.Stopped(),
		Limits:     badgesOf(r),
	}
}

// lineageFormats are the values of the parameter format. The default is json.
var lineageFormats = map[string]struct {
	contentType string
	render      func(*draw.Picture, io.Writer, int) error // nil for JSON
}{
	"json": {"application/json", nil},
	"text": {"text/plain; charset=utf-8", func(p *draw.Picture, w io.Writer, width int) error {
		return p.Text(w, draw.TextOptions{Width: width})
	}},
	"mermaid": {"text/vnd.mermaid; charset=utf-8", func(p *draw.Picture, w io.Writer, _ int) error { return p.Mermaid(w) }},
}

const (
	// nodeBytes is the approximate memory that a run takes in a graph, its picture and the answer.
	nodeBytes = 1 << 10
	// minWidth is the narrowest text that is still useful.
	minWidth = 20
	// maxLanes is more lanes than anybody can tell apart.
	maxLanes = 100
)

func (c *call) lineage() (*answer, error) {
	name, err := oneOf(c, "format", slices.Sorted(maps.Keys(lineageFormats))...)
	if err != nil {
		return nil, err
	}
	format := lineageFormats[cmp.Or(name, "json")]
	width, err := c.number("width", 0, minWidth, 10_000)
	if err != nil {
		return nil, err
	}
	relation, err := c.relation()
	if err != nil {
		return nil, err
	}
	withWords, err := c.flag("words")
	if err != nil {
		return nil, err
	}
	v, err := c.read(c.store.Lineage)
	if err != nil {
		return nil, err
	}
	if err := c.load.take(int64(len(v.runs)) * nodeBytes); err != nil {
		return nil, err
	}
	o := draw.Options{}
	if o.MaxLanes, err = c.number("lanes", draw.LanesFor(width), 2, maxLanes); err != nil {
		return nil, err
	}
	bundle, err := c.runParam("bundle")
	if err != nil {
		return nil, err
	}
	graph := graphOf(v.runs)
	tips, tip := graph.Tips(), graph.Tip()
	switch {
	case bundle != "":
		if v.runs, err = bundled(graph, v.runs, o, bundle); err != nil {
			return nil, err
		}
		graph, o = lineage.NewPart(headsOf(v.runs), tips, tip), draw.Options{MaxLanes: maxLanes, MaxSides: -1}
	case relation != "":
		run := c.Query.Get(relation)
		if _, ok := graph.Run(run); !ok {
			return nil, store.ErrNotFound
		}
		v.runs = only(v.runs, relations[relation](graph, run))
		graph = lineage.NewPart(headsOf(v.runs), tips, tip)
	}
	picture := draw.New(graph, o)
	if format.render != nil {
		return &answer{status: v.status, indexedTo: &v.indexedTo, contentType: format.contentType, body: func() ([]byte, error) {
			var b bytes.Buffer
			err := format.render(picture, &b, width)
			return b.Bytes(), err
		}}, nil
	}
	a := lineageAnswer{
		ThreadID: c.threadID, Runs: make([]client.LineageRun, len(v.runs)),
		Branches: list(graph.Branches()), Spawns: list(graph.Spawns()),
		Tips: list(graph.Tips()), TipRunID: tip, Picture: picture, IndexedTo: v.indexedTo,
	}
	said := map[string]words{}
	if withWords {
		if said, err = c.wordsOf(v.runs); err != nil {
			return nil, err
		}
	}
	for i, r := range v.runs {
		run, w := newLineageRun(r), said[r.RunID]
		run.Row = picture.Row(r.RunID)
		run.Question, run.Answer, run.Resumed, run.Resolution = w.Question, w.Answer, w.Resumed, w.Resolution
		a.Runs[i] = run
	}
	return &answer{status: v.status, indexedTo: &v.indexedTo, body: document(a)}, nil
}

// relations maps each parameter that selects part of a thread to a function. The function takes the run that the
// parameter names, and returns the related runs. As in git log, a run is among its own ancestors. It is not among its
// descendants and siblings.
var relations = map[string]func(g *lineage.Graph, run string) []string{
	"ancestorsOf":   (*lineage.Graph).Chain,
	"descendantsOf": (*lineage.Graph).Descendants,
	"siblingsOf":    (*lineage.Graph).Siblings,
}

// relation returns the parameter of relations that the request has, or "".
func (c *call) relation() (string, error) {
	asked := ""
	for name := range relations {
		id, err := c.runParam(name)
		if err != nil {
			return "", err
		}
		if id == "" {
			continue
		}
		if asked != "" {
			return "", badRequest("ancestorsOf, descendantsOf and siblingsOf exclude one another")
		}
		asked = name
	}
	return asked, nil
}

// bundled returns the rows of the runs in the fan or bundle that contains this run.
func bundled(g *lineage.Graph, rows []store.Run, o draw.Options, run string) ([]store.Run, error) {
	picture := draw.New(g, o)
	row := picture.Row(run)
	if row < 0 {
		return nil, store.ErrNotFound
	}
	if picture.Rows[row].Branches == 0 {
		return nil, badRequest("bundle: with %d lanes run %q has a row of its own", o.MaxLanes, run)
	}
	return only(rows, picture.RunsOf(row)), nil
}

// only returns the rows of these runs.
func only(rows []store.Run, ids []string) []store.Run {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	part := []store.Run{}
	for _, r := range rows {
		if wanted[r.RunID] {
			part = append(part, r)
		}
	}
	return part
}
