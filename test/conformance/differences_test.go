package conformance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/test/conformance"
)

// testdata/differences/NAME.txtar is an instance of a row of docs/fold.md, whose first cell is the first line of its
// comment: in.jsonl, which may hold several runs, client.json, what the whole client makes of it (-update), and skein.json,
// what Skein does, written by hand. A row that nothing differs by any more is none.
func TestDifferences_AreThoseOfTheDocument(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "differences", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d differences found: %v", len(files), err)
	}
	rows, err := os.ReadFile(filepath.Join("..", "..", "docs", "fold.md"))
	if err != nil {
		t.Fatal(err)
	}
	live, ok := conformance.Live(t)
	if *update && !ok {
		t.Fatal("-update needs the official client")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			d := readDifference(t, file)
			if row, _, _ := strings.Cut(string(d.archive.Comment), "\n"); !bytes.Contains(rows, []byte("\n| "+row+" | ")) {
				t.Errorf("docs/fold.md has no row %q", row)
			}
			if ok {
				result := reduceWhole(t, live, d.events)
				if *update {
					d.write(t, result)
				} else if d := d.client.diff(result); d != "" {
					t.Errorf("client.json against the running client: %s", d)
				}
			}
			got := foldRuns(t, d.events)
			if d := d.skein.diff(got); d != "" {
				t.Errorf("Skein: %s", d)
			}
			if d.client.diff(got) == "" {
				t.Error("nothing differs any more")
			}
		})
	}
}

type difference struct {
	file          string
	archive       *txtar.Archive
	events        []json.RawMessage
	client, skein caseResult
}

func readDifference(t *testing.T, file string) difference {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := difference{file: file, archive: archive}
	for _, f := range archive.Files {
		switch f.Name {
		case "in.jsonl":
			d.events = jsonLines(f.Data)
		case "client.json":
			err = json.Unmarshal(f.Data, &d.client)
		case "skein.json":
			err = json.Unmarshal(f.Data, &d.skein)
		default:
			t.Fatalf("there is no use for a file %s", f.Name)
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	return d
}

// write puts the client's result into the file, before Skein's.
func (d *difference) write(t *testing.T, client caseResult) {
	t.Helper()
	d.client = client
	var files []txtar.File
	for _, f := range d.archive.Files {
		switch f.Name {
		case "client.json":
			continue
		case "skein.json":
			files = append(files, jsonFile(t, "client.json", client))
		}
		files = append(files, f)
	}
	d.archive.Files = files
	writeArchive(t, d.file, d.archive)
}

// testdata/threads/NAME.txtar holds several runs in in.jsonl, and in want.json what one client holds that plays all of
// them in turn (-update). So does Skein.
func TestThreads_EqualOneClientThatPlaysAllRuns(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "threads", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d threads found: %v", len(files), err)
	}
	live, ok := conformance.Live(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			events := jsonLines(archive.Files[0].Data)
			var want caseResult
			if len(archive.Files) > 1 {
				if err := json.Unmarshal(archive.Files[1].Data, &want); err != nil {
					t.Fatal(err)
				}
			}
			if ok {
				result := reduceWhole(t, live, events)
				if *update {
					archive.Files = append(archive.Files[:1], jsonFile(t, "want.json", result))
					writeArchive(t, file, archive)
				} else if d := want.diff(result); d != "" {
					t.Errorf("want.json against the running client: %s", d)
				}
				want = result
			}
			if d := want.diff(foldRuns(t, events)); d != "" {
				t.Error(d)
			}
		})
	}
}

// reduceWhole returns what the whole client makes of events.
func reduceWhole(t *testing.T, live *conformance.Client, events []json.RawMessage) caseResult {
	t.Helper()
	r := live.Play(t, conformance.Job{Events: events, Upgrade: true, Schema: true, Strip: true, Skip: true})[0]
	return caseResult{r.Conversation, rejected(r)}
}

// foldRuns folds the runs of a thread in turn, as "skein fold" does, and returns what the last one leaves.
func foldRuns(t *testing.T, events []json.RawMessage) caseResult {
	t.Helper()
	s, err := fold.NewTurns(0)
	if err != nil {
		t.Fatal(err)
	}
	var malformed []int
	for from := 0; from < len(events); {
		lines, run := [][]byte{events[from]}, "run"
		for _, e := range events[from+1:] {
			if bytes.Contains(e, []byte(`"RUN_STARTED"`)) {
				break
			}
			lines = append(lines, e)
		}
		if ev, err := agui.Decode(events[from]); err == nil && ev.RunID != "" {
			run = ev.RunID
		}
		err := s.Add(run, nil, lines, func(i int, why error) {
			if agui.IsMalformed(why) {
				malformed = append(malformed, from+i)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		from += len(lines)
	}
	last := s.Runs()[len(s.Runs())-1].Fold
	return caseResult{conformance.Conversation{Messages: toJSON(t, last.Messages()), State: last.State()}, malformed}
}
