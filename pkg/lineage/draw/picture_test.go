package draw

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

var update = flag.Bool("update", false, "write the golden files anew")

// parseRuns reads a line a run: its id (in Go's quotes where it has to be), "<" and the parent's if
// it has one, and then properties. Offsets are line numbers; the first child of a run continues its
// branch.
func parseRuns(t *testing.T, text string) []lineage.Run {
	t.Helper()
	var runs []lineage.Run
	at := map[string]int{}
	continued := map[string]bool{}
	unquote := func(w string) string {
		if s, err := strconv.Unquote(w); err == nil {
			return s
		}
		return w
	}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		r := lineage.Run{ID: unquote(words[0]), ParentBy: lineage.ParentNone, Start: int64(n), End: int64(n), Sealed: true,
			Status: lineage.StatusFinished, MessageCount: 2}
		r.Branch = r.ID
		words = words[1:]
		if len(words) > 1 && words[0] == "<" {
			r.Parent, r.ParentBy = unquote(words[1]), lineage.ParentExplicit
			if p, ok := at[r.Parent]; ok {
				r.MessageCount += runs[p].MessageCount
				if !continued[r.Parent] {
					continued[r.Parent], r.Branch = true, runs[p].Branch
				}
			}
			words = words[2:]
		}
		for _, w := range words {
			name, value, _ := strings.Cut(w, "=")
			switch name {
			case "open":
				r.End, r.Sealed, r.Status = -1, false, lineage.StatusRunning
			case "abandoned":
				r.Sealed, r.Status, r.Synthetic = false, lineage.StatusAbandoned, true
			case "content", "latest":
				r.ParentBy = lineage.ParentBy(name)
			case "spawned":
				r.SpawnedBy = agui.String(unquote(value))
			case "truncated":
				r.Truncated = true
			case "rewrote":
				for _, kind := range strings.Split(value, ",") {
					r.Rewrote = append(r.Rewrote, lineage.Rewrite(kind))
				}
			case "rawlost":
				r.RawLost = true
			case "at":
				v, err := time.Parse(time.RFC3339, value)
				if err != nil {
					t.Fatal(err)
				}
				r.StartedAt = v
			default:
				r.Status = lineage.Status(name)
			}
		}
		at[r.ID] = len(runs)
		runs = append(runs, r)
	}
	return runs
}

// TestPicture_Golden draws the threads in testdata. An archive's comment says what it shows; its
// first file is the thread, the others are what is drawn of it.
func TestPicture_Golden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no archives: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			g := lineage.NewGraph(parseRuns(t, string(a.Files[0].Data)))
			for i := 1; i < len(a.Files); i++ {
				got := draw(t, g, a.Files[i].Name)
				if !*update && got != string(a.Files[i].Data) {
					t.Errorf("%s (-update writes it anew):\n%s", a.Files[i].Name, got)
				}
				a.Files[i].Data = []byte(got)
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// draw makes the file of that name: its words choose the options.
func draw(t *testing.T, g *lineage.Graph, name string) string {
	t.Helper()
	var o Options
	var text TextOptions
	words := strings.FieldsFunc(strings.TrimSuffix(name, filepath.Ext(name)), func(r rune) bool { return r == '-' })
	for _, w := range words {
		switch {
		case w == "all":
			o.MinFold = -1
		case w == "ascii":
			text.ASCII = true
		case w == "color":
			text.Color = true
		case w == "narrow":
			text.Width = 40
		case w == "labels":
			text.Label = func(r lineage.Run) string { return "what about " + r.ID + "?\n\x1b[31m" }
		case strings.HasSuffix(w, "lanes"):
			n, err := strconv.Atoi(strings.TrimSuffix(w, "lanes"))
			if err != nil {
				t.Fatal(err)
			}
			o.MaxLanes = n
		}
	}
	var b bytes.Buffer
	p := New(g, o)
	var err error
	switch filepath.Ext(name) {
	case ".mmd":
		err = p.Mermaid(&b)
	default:
		err = p.Text(&b, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), "\x1b", "␛")
}

// checkPicture checks the rules of docs/adr/015-lanes.md on a picture, from its rows alone.
func checkPicture(t *rapid.T, g *lineage.Graph, p *Picture, o Options) {
	t.Helper()
	if o.MaxLanes == 0 {
		o.MaxLanes = DefaultMaxLanes
	}
	type branch struct{ id, lane, low, last int }
	branches := map[int]*branch{}
	var order []*branch // as they need their lanes
	drawn := map[string]int{}
	for n, r := range p.Rows {
		where := fmt.Sprintf("row %d, %+v", n, r)
		ids := p.RunsOf(n)
		if r.Runs != len(ids) || r.RunID != ids[0] || r.Runs > 1 && r.LastRunID != ids[len(ids)-1] {
			t.Fatalf("%s: it stands for %q", where, ids)
		}
		for _, id := range ids {
			if drawn[id]++; p.Row(id) != n {
				t.Fatalf("%s: run %q is said to be in row %d", where, id, p.Row(id))
			}
		}
		b := branches[r.Branch]
		if b == nil {
			b = &branch{r.Branch, r.Lane, n, n}
			if r.Above >= 0 {
				b.low = r.Above + 1
			}
			branches[r.Branch] = b
			order = append(order, b)
		} else if r.Above != b.last {
			t.Fatalf("%s: it does not go on from row %d, the last of its branch", where, b.last)
		}
		b.last = n
		if r.Lane != b.lane || r.Above >= n || r.Lane >= o.MaxLanes {
			t.Fatalf("%s: its branch stands in lane %d", where, b.lane)
		}
		if above := g.Parent(ids[0]); r.Branch >= 0 && ((r.Above < 0) != (above == "") || above != "" && p.Row(above) != r.Above) {
			t.Fatalf("%s: its parent is %q in row %d", where, above, p.Row(above))
		}
		if r.Kind == RowFold {
			for k, id := range ids[1:] {
				if g.Parent(id) != ids[k] {
					t.Fatalf("%s: %q does not go on from %q", where, id, ids[k])
				}
			}
		}
	}
	if len(drawn) != g.Len() {
		t.Fatalf("%d of %d runs are drawn", len(drawn), g.Len())
	}
	// Each branch has the lowest lane that those before it leave free. (Bundles hide what was before.)
	slices.SortStableFunc(order, func(a, b *branch) int { return cmp.Compare(a.low, b.low) })
	for k, b := range order {
		free := make([]bool, p.Lanes)
		for l := range free {
			free[l] = true
		}
		for _, other := range order[:k] {
			if other.low <= b.last && b.low <= other.last {
				free[other.lane] = false
			}
		}
		if lowest := slices.Index(free, true); lowest != b.lane && branches[-1] == nil || !free[b.lane] {
			t.Fatalf("branch %+v could stand in lane %d", *b, lowest)
		}
	}
	// What a row says of lanes is what the branches need.
	through, forks, down := make([][]int, len(p.Rows)), make([][]int, len(p.Rows)), make([]bool, len(p.Rows))
	for _, b := range branches {
		for n := b.low; n < b.last; n++ {
			if p.Rows[n].Branch != b.id {
				through[n] = append(through[n], b.lane)
			}
		}
	}
	for n, r := range p.Rows {
		down[n] = down[n] || n < branches[r.Branch].last
		switch {
		case r.Above < 0 || p.Rows[r.Above].Branch == r.Branch:
		case p.Rows[r.Above].Lane == r.Lane:
			down[r.Above] = true
		default:
			forks[r.Above] = append(forks[r.Above], r.Lane)
		}
	}
	for n, r := range p.Rows {
		slices.Sort(through[n])
		slices.Sort(forks[n])
		if !slices.Equal(r.Through, through[n]) || !slices.Equal(r.Forks, forks[n]) || r.Down != down[n] {
			t.Fatalf("row %d, %+v: want through %v, forks %v, down %v", n, r, through[n], forks[n], down[n])
		}
	}
}

// Law: lanes keep their rules for any forest, and neither folding nor bundling changes the others.
func TestPicture_KeepsTheRulesOfLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []lineage.Run
		statuses := []lineage.Status{lineage.StatusFinished, lineage.StatusFinished, lineage.StatusFinished, lineage.StatusError,
			lineage.StatusInterrupted, lineage.StatusRunning}
		for i := range rapid.IntRange(1, 60).Draw(t, "runs") {
			r := lineage.Run{ID: fmt.Sprint("r", i), Start: int64(i), End: int64(i), ParentBy: lineage.ParentNone, Status: rapid.SampledFrom(statuses).Draw(t, "status")}
			if r.Status == lineage.StatusRunning {
				r.End = -1
			}
			if i > 0 && rapid.IntRange(0, 20).Draw(t, "root") > 0 {
				back := i - 1
				if rapid.IntRange(0, 2).Draw(t, "aside") == 0 {
					back = rapid.IntRange(0, i-1).Draw(t, "parent")
				}
				r.Parent, r.ParentBy = runs[back].ID, lineage.ParentExplicit
			}
			runs = append(runs, r)
		}
		g := lineage.NewGraph(runs)
		o := Options{MaxLanes: rapid.IntRange(2, 8).Draw(t, "lanes"), MinFold: rapid.SampledFrom([]int{-1, 0, 2}).Draw(t, "fold"),
			MaxSides: rapid.SampledFrom([]int{-1, 0, 1}).Draw(t, "sides")}
		p := New(g, o)
		checkPicture(t, g, p, o)
		o.MinFold, o.MaxLanes = -1, 1000
		open := New(g, o)
		checkPicture(t, g, open, o)
		for _, r := range runs {
			if a, b := p.Rows[p.Row(r.ID)], open.Rows[open.Row(r.ID)]; a.Branch >= 0 && (a.Lane != b.Lane || a.Branch != b.Branch) {
				t.Fatalf("run %s stands in lane %d, unfolded in lane %d", r.ID, a.Lane, b.Lane)
			}
		}
	})
}

// Law: on any runs at all, also such as cannot be, every picture is whole.
func TestPicture_OfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "runs")
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("r", rapid.IntRange(0, n).Draw(t, "id")) })
		runs := make([]lineage.Run, n)
		for i := range runs {
			runs[i] = lineage.Run{ID: fmt.Sprint("r", i), Start: rapid.Int64Range(0, 20).Draw(t, "start"),
				End: rapid.Int64Range(-1, 0).Draw(t, "end")}
			if rapid.IntRange(0, 5).Draw(t, "has a parent") > 0 {
				runs[i].Parent = id.Draw(t, "parent")
			}
			runs[i].Branch = rapid.SampledFrom([]string{"", "r0", "r1", runs[i].ID}).Draw(t, "branch")
			if rapid.IntRange(0, 8).Draw(t, "spawned") == 0 {
				runs[i].SpawnedBy = agui.String(id.Draw(t, "by"))
			}
		}
		g := lineage.NewGraph(runs)
		for _, o := range []Options{{}, {MinFold: -1}, {MaxLanes: 1}, {MaxLanes: 2, MinFold: 1}} {
			checkPicture(t, g, New(g, o), o)
		}
	})
}

func TestPicture_OfAChainOfAHundredThousandRuns(t *testing.T) {
	const n = 100_000
	runs := make([]lineage.Run, n)
	for i := range runs {
		runs[i] = lineage.Run{ID: fmt.Sprint(i), Branch: "0", Start: int64(i)}
		if i > 0 {
			runs[i].Parent = fmt.Sprint(i - 1)
		}
	}
	if p := New(lineage.NewGraph(runs), Options{}); len(p.Rows) != 3 || p.Rows[1].Runs != n-2 {
		t.Errorf("a straight line is drawn in %d rows", len(p.Rows))
	}
	// Every run a branch of its own: each begins below its fork, where that one's lane is free.
	for i := range runs {
		runs[i].Branch = runs[i].ID
	}
	if p := New(lineage.NewGraph(runs), Options{}); len(p.Rows) != n || p.Lanes != 1 {
		t.Errorf("a line of branches is drawn in %d rows and %d lanes", len(p.Rows), p.Lanes)
	}
}

// Laws: whatever ids, labels and statuses are, text stays within its width and on its line, and
// nothing that moves a cursor or turns the direction of writing gets through; all renderers write
// one line a row or more.
func TestPicture_TextNeverLeavesTheScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"", "\x00", "\x1b[2J", "a\nb", "\u202eabc", "\u2066", "👨‍👩‍👧", strings.Repeat("👍", 128), "日本語", "a\"b", `\`, "\xff\xfe",
			"e\u0301\u0301\u0301", strings.Repeat("x", 512), "  ", "\u00a0", "\ufeff", "\u2028",
		}))
		var runs []lineage.Run
		for i := range rapid.IntRange(1, 12).Draw(t, "runs") {
			r := lineage.Run{ID: word.Draw(t, "id"), Branch: fmt.Sprint(i), Start: int64(i), Status: lineage.Status(word.Draw(t, "status")), SpawnedBy: agui.String(word.Draw(t, "spawned"))}
			if i > 0 {
				r.Parent = runs[rapid.IntRange(0, i-1).Draw(t, "parent")].ID
			}
			runs = append(runs, r)
		}
		p := New(lineage.NewGraph(runs), Options{MaxLanes: 4})
		o := TextOptions{Width: rapid.IntRange(1, 60).Draw(t, "width"), ASCII: rapid.Bool().Draw(t, "ascii")}
		label := word.Draw(t, "label")
		o.Label = func(lineage.Run) string { return label }
		var text, mermaid bytes.Buffer
		for _, err := range []error{p.Text(&text, o), p.Mermaid(&mermaid)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		lines := slices.DeleteFunc(strings.Split(text.String(), "\n"), func(l string) bool { return l == "" })
		want := len(p.Rows)
		for n, r := range p.Rows {
			if n > 0 && r.Above < 0 && len(r.Through) > 0 {
				want++ // the line of lanes above a root
			}
		}
		if len(lines) != want {
			t.Fatalf("%d lines, want %d for %d rows", len(lines), want, len(p.Rows))
		}
		for _, l := range lines {
			if w := TextWidth(l); w > o.Width {
				t.Fatalf("%q is %d columns wide, not %d", l, w, o.Width)
			}
		}
		for _, out := range []string{text.String(), mermaid.String()} {
			for _, r := range out {
				if r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar && !strings.Contains(fmt.Sprint(runs, label), "\ufffd") {
					t.Fatalf("%q gets through in %q", r, out)
				}
				if o.ASCII && r > unicode.MaxASCII && out == text.String() {
					t.Fatalf("%q is not ASCII", out)
				}
			}
		}
		// Strings of the formats end where they should.
		for _, l := range strings.Split(mermaid.String(), "\n") {
			if strings.Count(l, `"`)%2 != 0 {
				t.Fatalf("unbalanced quotes in %q", l)
			}
		}
	})
}

func TestPicture_KeepsRunsThatAreAskedFor(t *testing.T) {
	var runs []lineage.Run
	for i := range 40 {
		runs = append(runs, lineage.Run{ID: fmt.Sprint(i), Start: int64(i), Branch: "0"})
		if i > 0 {
			runs[i].Parent = fmt.Sprint(i - 1)
		}
	}
	p := New(lineage.NewGraph(runs), Options{Keep: []string{"20", "nobody"}})
	var got []string
	for _, r := range p.Rows {
		got = append(got, fmt.Sprint(r.RunID, "x", r.Runs))
	}
	if want := []string{"0x1", "1x19", "20x1", "21x18", "39x1"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}
