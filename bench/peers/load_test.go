package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/record"
)

func TestLoads_AreThreadsThatSpeakAtATime(t *testing.T) {
	for _, c := range []struct {
		load                 load
		records, runs, input int
	}{
		{made(20, 480), 20 * 503, 20, 0},
		{recorded(2), 2 * 4273, 2 * 69, 2 * 69},
	} {
		t.Run(c.load.name, func(t *testing.T) {
			n, inputs, together := 0, 0, 0
			next, of, open := map[string]int64{}, map[string]string{}, map[string]string{} // by run, by run, by thread
			c.load.each(func(m message) bool {
				n++
				if _, err := m.record(); err != nil || !json.Valid(m.value) {
					t.Fatalf("record %d is none: %v: %s", n, err, m.value)
				}
				if m.kind == record.KindInput {
					inputs++
				} else if m.seq != next[m.run] {
					t.Fatalf("record %d is number %d of %s, want %d", n, m.seq, m.run, next[m.run])
				} else {
					next[m.run]++
				}
				if thread, ok := of[m.run]; ok && (thread != m.thread || open[m.thread] != m.run) {
					t.Fatalf("record %d is of run %s of %s, which was %s's and has ended", n, m.run, m.thread, thread)
				}
				of[m.run], open[m.thread] = m.thread, m.run
				together = max(together, len(open))
				return true
			})
			if n != c.records || len(of) != c.runs || inputs != c.input || len(open) != c.load.threads {
				t.Errorf("%d records of %d runs of %d threads with %d inputs, want %d of %d of %d with %d",
					n, len(of), len(open), inputs, c.records, c.runs, c.load.threads, c.input)
			}

			file := filepath.Join(t.TempDir(), "events")
			written, err := c.load.write(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines, gaps := bytes.Count(text, []byte("\n")), bytes.Count(text, []byte("\n\n"))
			if events := c.records - c.input; written != events || lines != events+c.runs || gaps != c.runs {
				t.Errorf("the file has %d lines and %d gaps, %d were said to be written, want %d and %d", lines, gaps, written, events+c.runs, c.runs)
			}
		})
	}
}

func TestRecorded_HasFreshIDs(t *testing.T) {
	l := recorded(2)
	all := recordings.All()
	for i, thread := range all {
		var copies [2]string
		for c := range copies {
			for m := range l.thread(c*len(all) + i) {
				copies[c] += string(m.value) + "\n"
				if m.thread == thread.ThreadID {
					t.Fatalf("%s keeps its thread's id", thread)
				}
			}
		}
		if copies[0] == copies[1] {
			t.Errorf("both copies of %s are the same", thread)
		}
		for _, r := range thread.Runs {
			for c, text := range copies {
				if bytes.Contains([]byte(text), []byte(`"`+r.RunID+`"`)) {
					t.Errorf("copy %d of %s names the recorded run %s", c, thread, r.RunID)
				}
			}
		}
	}
}
