package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample has three rounds of load A; Streams has one that was disturbed.
func sample() set {
	s := set{Machine: machine{Date: "2026-11-29", Commit: "abc", Processors: 2, Kafka: "4.3.1", Go: "go1.26"}}
	for round, slow := range []float64{1, 3, 1} {
		s.Results = append(s.Results,
			result{Load: "A", Peer: "consumer", Round: round, Events: 2_012_000, CPU: 1 * slow, Rate: 1_000_000 / slow},
			result{Load: "A", Peer: "compactor", Round: round, Events: 2_012_000, CPU: 2 * slow, Rate: 500_000 / slow, Written: .5},
			result{Load: "A", Peer: "streams", Round: round, Events: 2_012_000, CPU: 16 * slow, WarmCPU: 10 * slow,
				Rate: 100_000 / slow, WarmRate: 125_000 / slow})
	}
	return s
}

func TestSet_TakesRatiosWithinARound(t *testing.T) {
	s := sample()
	s.Results[4].CPU = 12 // of the compactor in the second round: the ratio, too, is that of another round
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"median", s.median("A", "compactor", cpu), 2},
		{"ratio", s.ratio("A", "compactor", "consumer", cpu, cpu), 2},
		{"ratio to warm", s.ratio("A", "compactor", "streams", rate, warmRate), 4},
		{"median of two", median([]float64{3, 1}), 2},
		{"of what is not there", s.ratio("B", "compactor", "echo", cpu, cpu), 0},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestSet_TableSaysWhatWasMeasured(t *testing.T) {
	want := "| A | Kafka Streams: folds, writes snapshots in transactions | 16.00 (10.00 warm) | 100,000 (125,000 warm) | – | – | 0.12 (0.20 warm) | 5.00 (4.00 warm) |\n"
	if got := sample().table(); !strings.Contains(got, want) {
		t.Errorf("the table is\n%swant in it\n%s", got, want)
	}
}

func TestSet_ChartIsToScale(t *testing.T) {
	width := map[string]string{} // of processor time, by what it is of
	d := xml.NewDecoder(strings.NewReader(sample().chart()))
	bar := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bar = e.Attr[2].Value
		}
		if text, ok := token.(xml.CharData); ok && bar != "" {
			if name, _, _ := strings.Cut(string(text), ":"); width[name] == "" {
				width[name] = bar
			}
			bar = ""
		}
	}
	for name, want := range map[string]string{"bare consumer": "12", "Skein's compactor": "25", "Kafka Streams": "200"} {
		if width[name] != want {
			t.Errorf("the bar of %s is %s wide, want %s", name, width[name], want)
		}
	}
}

var update = flag.Bool("update", false, "write the published table and chart anew from the published results")

func TestPublished_IsWhatTheResultsSay(t *testing.T) {
	const page, picture = "../../docs/bench/compactor.md", "../../docs/pictures/speed.svg"
	s, err := read("../../docs/bench/compactor.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- results -->\n")
	_, after, more := strings.Cut(rest, "<!-- /results -->\n")
	if !ok || !more {
		t.Fatalf("%s has no place for the results", page)
	}
	whole := before + "<!-- results -->\n" + s.table() + "<!-- /results -->\n" + after
	for file, want := range map[string]string{page: whole, picture: s.chart()} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the results say: go test ./bench/peers -run Published -update (%v)", file, err)
		}
	}
}

func TestSet_IsReadAsItWasWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.jsonl")
	s := sample()
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.table() != s.table() || got.chart() != s.chart() {
		t.Errorf("what was read is\n%swant\n%s", got.table(), s.table())
	}
}
