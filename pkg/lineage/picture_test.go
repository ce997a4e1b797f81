package lineage

import (
	"bytes"
	"flag"
	"fmt"
	"io"
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
)

var update = flag.Bool("update", false, "write the golden files anew")

// parseRuns reads a line a run: its id (in Go's quotes where it has to be), "<" and the parent's if
// it has one, and then properties. Offsets are line numbers; the first child of a run continues its
// branch.
func parseRuns(t *testing.T, text string) []Run {
	t.Helper()
	var runs []Run
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
		r := Run{ID: unquote(words[0]), ParentBy: ParentNone, Start: int64(n), End: int64(n), Sealed: true, Status: StatusFinished, MessageCount: 2}
		r.Branch = r.ID
		words = words[1:]
		if len(words) > 1 && words[0] == "<" {
			r.Parent, r.ParentBy = unquote(words[1]), ParentExplicit
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
				r.End, r.Sealed, r.Status = -1, false, StatusRunning
			case "abandoned":
				r.Sealed, r.Status, r.Synthetic = false, StatusAbandoned, true
			case "content", "latest":
				r.ParentBy = ParentBy(name)
			case "spawned":
				r.SpawnedBy = unquote(value)
			case "truncated":
				r.Truncated = true
			case "rewrote":
				for _, kind := range strings.Split(value, ",") {
					r.Rewrote = append(r.Rewrote, Rewrite(kind))
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
				r.Status = Status(name)
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
			g := NewGraph(parseRuns(t, string(a.Files[0].Data)))
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
func draw(t *testing.T, g *Graph, name string) string {
	t.Helper()
	var o PictureOptions
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
			text.Label = func(r Run) string { return "what about " + r.ID + "?\n\x1b[31m" }
		case strings.HasSuffix(w, "lanes"):
			n, err := strconv.Atoi(strings.TrimSuffix(w, "lanes"))
			if err != nil {
				t.Fatal(err)
			}
			o.MaxLanes = n
		}
	}
	var b bytes.Buffer
	p := g.Picture(o)
	var err error
	switch filepath.Ext(name) {
	case ".mmd":
		err = p.Mermaid(&b)
	case ".dot":
		err = p.DOT(&b)
	default:
		err = p.Text(&b, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), "\x1b", "␛")
}

// checkPicture checks what holds of every picture: each run is in one row, and the lanes lead from
// each row to the next.
func checkPicture(t fataler, g *Graph, p *Picture, o PictureOptions) {
	t.Helper()
	if o.MaxLanes == 0 {
		o.MaxLanes = DefaultMaxLanes
	}
	drawn := map[string]int{}
	last := map[int]string{} // the last run of each lane
	alive := map[int]bool{}
	sum := 0
	for n, r := range p.Rows {
		where := fmt.Sprintf("row %d, %+v", n, r)
		sum += r.Runs
		switch {
		case r.Lane > o.MaxLanes || r.Lane == o.MaxLanes && r.Kind != RowBundle:
			t.Fatalf("%s: too many lanes", where)
		case r.From < 0 && (r.Lane != 0 || len(alive) > 0):
			t.Fatalf("%s: a root beside lanes %v", where, alive)
		case r.From >= 0 && r.From != r.Lane && r.From != r.Lane-1, r.From >= 0 && !alive[r.From]:
			t.Fatalf("%s: it follows no lane; alive are %v", where, alive)
		}
		now := map[int]bool{}
		if r.Down {
			now[r.Lane] = true
		}
		for _, l := range r.Through {
			if !alive[l] || l >= r.Lane {
				t.Fatalf("%s: lane %d passes and is not there", where, l)
			}
			now[l] = true
		}
		for l := range alive {
			if !now[l] && l != r.Lane && l != r.From {
				t.Fatalf("%s: lane %d ends in nothing", where, l)
			}
		}
		alive = now
		parent := g.Parent(r.RunID)
		if r.Kind == RowBundle {
			parent = r.RunID
		}
		if r.From >= 0 && last[r.From] != parent {
			t.Fatalf("%s: it follows run %q, its parent is %q", where, last[r.From], parent)
		}
		switch r.Kind {
		case RowRun:
			drawn[r.RunID]++
			last[r.Lane] = r.RunID
		case RowFold:
			chain := 0
			for id := r.LastRunID; ; id = g.Parent(id) {
				drawn[id]++
				if chain++; id == r.RunID || id == "" {
					break
				}
			}
			if chain != r.Runs {
				t.Fatalf("%s: it folds %d runs", where, chain)
			}
			last[r.Lane] = r.LastRunID
		}
	}
	if len(alive) > 0 {
		t.Fatalf("lanes %v go on below the last row", alive)
	}
	if sum != g.Len() {
		t.Fatalf("%d of %d runs are drawn", sum, g.Len())
	}
	for id, n := range drawn {
		if n != 1 {
			t.Fatalf("run %q is drawn %d times", id, n)
		}
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
		var runs []Run
		for i := range rapid.IntRange(1, 12).Draw(t, "runs") {
			r := Run{ID: word.Draw(t, "id"), Branch: fmt.Sprint(i), Start: int64(i), Status: Status(word.Draw(t, "status")), SpawnedBy: word.Draw(t, "spawned")}
			if i > 0 {
				r.Parent = runs[rapid.IntRange(0, i-1).Draw(t, "parent")].ID
			}
			runs = append(runs, r)
		}
		p := NewGraph(runs).Picture(PictureOptions{MaxLanes: 4})
		o := TextOptions{Width: rapid.IntRange(1, 60).Draw(t, "width"), ASCII: rapid.Bool().Draw(t, "ascii")}
		label := word.Draw(t, "label")
		o.Label = func(Run) string { return label }
		var text, mermaid, dot bytes.Buffer
		for _, err := range []error{p.Text(&text, o), p.Mermaid(&mermaid), p.DOT(&dot)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		lines := slices.DeleteFunc(strings.Split(text.String(), "\n"), func(l string) bool { return l == "" })
		if len(lines) != len(p.Rows) {
			t.Fatalf("%d lines for %d rows", len(lines), len(p.Rows))
		}
		for _, l := range lines {
			if w := textWidth(l); w > o.Width {
				t.Fatalf("%q is %d columns wide, not %d", l, w, o.Width)
			}
		}
		for _, out := range []string{text.String(), mermaid.String(), dot.String()} {
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
		for _, l := range strings.Split(dot.String(), "\n") {
			if strings.Count(strings.NewReplacer(`\\`, "", `\"`, "").Replace(l), `"`)%2 != 0 {
				t.Fatalf("unbalanced quotes in %q", l)
			}
		}
	})
}

func TestPicture_ColorsChangeNothingElse(t *testing.T) {
	p := NewGraph(sample()).Picture(PictureOptions{})
	var plain, colored bytes.Buffer
	if err := p.Text(&plain, TextOptions{Width: 30}); err != nil {
		t.Fatal(err)
	}
	if err := p.Text(&colored, TextOptions{Width: 30, Color: true}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i, part := range strings.Split(colored.String(), "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		b.WriteString(part)
	}
	if b.String() != plain.String() {
		t.Errorf("without its colors it is\n%s, not\n%s", b.String(), plain.String())
	}
}

func TestPicture_KeepsRunsThatAreAskedFor(t *testing.T) {
	var runs []Run
	for i := range 40 {
		runs = append(runs, Run{ID: fmt.Sprint(i), Start: int64(i), Branch: "0"})
		if i > 0 {
			runs[i].Parent = fmt.Sprint(i - 1)
		}
	}
	p := NewGraph(runs).Picture(PictureOptions{Keep: []string{"20", "nobody"}})
	var got []string
	for _, r := range p.Rows {
		got = append(got, fmt.Sprint(r.RunID, "x", r.Runs))
	}
	if want := []string{"0x1", "1x19", "20x1", "21x18", "39x1"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestPicture_SaysWhenItCannotBeWritten(t *testing.T) {
	p := NewGraph(sample()).Picture(PictureOptions{})
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"text": p.Text(w, TextOptions{}), "mermaid": p.Mermaid(w), "dot": p.DOT(w)} {
		if err == nil {
			t.Errorf("%s: a closed pipe was written to", name)
		}
	}
}

func BenchmarkPicture(b *testing.B) {
	th, _ := benchmarkThread(b, 10_000)
	var runs []Run
	for i := range th.Len() {
		r, _ := th.Run(fmt.Sprint("r", i))
		runs = append(runs, r)
	}
	for b.Loop() {
		if err := NewGraph(runs).Picture(PictureOptions{}).Text(io.Discard, TextOptions{Width: 120}); err != nil {
			b.Fatal(err)
		}
	}
}
