package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// machine is the first line of the results: what they were measured with.
type machine struct {
	Date       string `json:"date"`
	Commit     string `json:"commit"`
	Processors int    `json:"processors"`
	Processor  string `json:"processor,omitempty"`
	Kafka      string `json:"kafka"`
	Go         string `json:"go"`
	Java       string `json:"java,omitempty"`
	Node       string `json:"node,omitempty"`
}

// result is what one of the peers took in one round. Figures that it does not have are 0.
type result struct {
	Load     string  `json:"load"`
	Peer     string  `json:"peer"`
	Round    int     `json:"round"`
	Events   int     `json:"events"`
	CPU      float64 `json:"cpu"`                // processor seconds a million events, with the start
	WarmCPU  float64 `json:"warmCPU,omitempty"`  // the same without the first quarter
	Rate     float64 `json:"rate"`               // events a second
	WarmRate float64 `json:"warmRate,omitempty"` // the same without the first quarter
	Written  float64 `json:"written,omitempty"`  // bytes on the broker's disk, as a share of those of the events
	Records  float64 `json:"records,omitempty"`  // bytes of keys and values, unpacked, as a share of those of the events
	MiB      float64 `json:"mib,omitempty"`      // resident at most
	P50      float64 `json:"p50,omitempty"`      // ms
	P99      float64 `json:"p99,omitempty"`      // ms
	Tip      float64 `json:"tip,omitempty"`      // seconds, the oldest tip of skein.snapshots
}

// String has the figures that there are.
func (r result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s %5.2f CPU s/M %8.0f events/s", r.Peer, r.CPU, r.Rate)
	for _, f := range []struct {
		format string
		is     float64
	}{
		{", warm %.2f", r.WarmCPU}, {" %.0f", r.WarmRate}, {", %.2f written", r.Written}, {", %.2f of records", r.Records}, {", %.0f MiB", r.MiB},
		{", p50 %.1f ms", r.P50}, {", p99 %.1f ms", r.P99}, {", oldest tip %.1f s", r.Tip},
	} {
		if f.is > 0 {
			fmt.Fprintf(&b, f.format, f.is)
		}
	}
	return b.String()
}

// set is all of one measurement.
type set struct {
	Machine machine
	Results []result
}

// read reads what a measurement has written.
func read(file string) (s set, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&s.Machine); err != nil {
		return s, fmt.Errorf("reading %s: %w", file, err)
	}
	for {
		var r result
		if err := d.Decode(&r); err == io.EOF {
			return s, nil
		} else if err != nil {
			return s, fmt.Errorf("reading %s: %w", file, err)
		}
		s.Results = append(s.Results, r)
	}
}

// write writes the machine and each result as a line.
func (s set) write(file string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	if err := lines.Encode(s.Machine); err != nil {
		return err
	}
	for _, r := range s.Results {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// median is that of a figure over the rounds; none is 0.
func (s set) median(load, peer string, of func(result) float64) float64 {
	return median(s.each(load, peer, of))
}

// each is a figure in each round, in order.
func (s set) each(load, peer string, of func(result) float64) (all []float64) {
	for _, r := range s.Results {
		if r.Load == load && r.Peer == peer {
			all = append(all, of(r))
		}
	}
	return all
}

// ratio is the median over the rounds of what a is to b within each of them.
func (s set) ratio(load, a, b string, of, to func(result) float64) float64 {
	over, under := s.each(load, a, of), s.each(load, b, to)
	var all []float64
	for i := range min(len(over), len(under)) {
		if under[i] > 0 {
			all = append(all, over[i]/under[i])
		}
	}
	return median(all)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
}

func cpu(r result) float64      { return r.CPU }
func warmCPU(r result) float64  { return r.WarmCPU }
func rate(r result) float64     { return r.Rate }
func warmRate(r result) float64 { return r.WarmRate }

// what says of each peer that drains what it does.
var what = []struct{ peer, name, does string }{
	{"consumer", "bare consumer", "reads the topic, nothing else"},
	{"echo", "bare echo", "copies the topic in transactions"},
	{"compactor", "Skein's compactor", "folds, writes records in transactions"},
	{"streams", "Kafka Streams", "folds, writes snapshots in transactions"},
	{"client", "compactEvents in Node", "one thread, reads a file: no Kafka, no output"},
}

var loads = []struct{ name, is string }{
	{"A", "runs of 503 events, mostly deltas"},
	{"B", "recordings of real frameworks under fresh ids"},
}

// table is the report in Markdown, as docs/bench/compactor.md has it.
func (s set) table() string {
	var b strings.Builder
	m := s.Machine
	fmt.Fprintf(&b, "%s at %s: %d processors (%s), shared with the broker; Kafka %s, %s", m.Date, m.Commit, m.Processors, m.Processor, m.Kafka, m.Go)
	for _, with := range []string{m.Java, m.Node} {
		if with != "" {
			fmt.Fprintf(&b, ", %s", with)
		}
	}
	b.WriteString(".\n")
	var rows strings.Builder
	var shares []string
	for _, l := range loads {
		rounds := s.each(l.name, "compactor", cpu)
		if len(rounds) == 0 {
			continue
		}
		fmt.Fprintf(&b, "Load %s: %s; medians of %d, of ratios too.\n", l.name, l.is, len(rounds))
		for _, w := range what {
			if len(s.each(l.name, w.peer, cpu)) == 0 {
				continue
			}
			fmt.Fprintf(&rows, "| %s | %s: %s | %s | %s | %s | %s | %s | %s |\n", l.name, w.name, w.does,
				s.both(l.name, w.peer, seconds, cpu, warmCPU), s.both(l.name, w.peer, grouped, rate, warmRate),
				dash("%.2f", s.median(l.name, w.peer, func(r result) float64 { return r.Written })),
				dash("%.0f", s.median(l.name, w.peer, func(r result) float64 { return r.MiB })),
				s.part(l.name, w.peer, cpu, cpu, warmCPU), s.part(l.name, w.peer, rate, rate, warmRate))
		}
		share := s.median(l.name, "compactor", func(r result) float64 { return r.Records })
		shares = append(shares, fmt.Sprintf("%.2f of load %s", share, l.name))
	}
	if rows.Len() > 0 {
		b.WriteString("\n| load | | CPU s a million events | events/s | written on disk per byte read | MiB at most | compactor's CPU to it | compactor's rate to it |\n" +
			"|---|---|---|---|---|---|---|---|\n" + rows.String() +
			"\nKeys and values that the compactor writes per byte that it reads, both unpacked: " + strings.Join(shares, ", ") + ".\n")
	}
	live := func(peer string, of func(result) float64) float64 { return s.median("live", peer, of) }
	p50, p99 := func(r result) float64 { return r.P50 }, func(r result) float64 { return r.P99 }
	if live("live", rate) > 0 {
		fmt.Fprintf(&b, "\nAt %.0f events/s, from the acknowledgement of a run's last event to its record: p50 %.0f ms, p99 %.0f ms; the oldest tip on `skein.snapshots` "+
			"%.1f s; %.2f CPU s a million events.\n", live("live", rate), live("live", p50), live("live", p99),
			slices.Max(s.each("live", "live", func(r result) float64 { return r.Tip })), live("live", cpu))
	}
	if live("ingest", rate) > 0 && live("handler", rate) > 0 {
		fmt.Fprintf(&b, "\nIngest, batches of 100: %.2f CPU s a million events, a bare handler %.2f; %.2f of its CPU, %.2f of its rate; p50 %.1f and %.1f ms.\n",
			live("ingest", cpu), live("handler", cpu), s.ratio("live", "ingest", "handler", cpu, cpu),
			s.ratio("live", "ingest", "handler", rate, rate), live("ingest", p50), live("handler", p50))
	}
	return b.String()
}

// both is a figure and, for what has to get warm (Java), the one without the first quarter.
func (s set) both(load, peer string, as func(float64) string, whole, warm func(result) float64) string {
	text := as(s.median(load, peer, whole))
	if peer == "streams" {
		text += " (" + as(s.median(load, peer, warm)) + " warm)"
	}
	return text
}

// part is the compactor's figure to a peer's, and to the warm one of what has to get warm.
func (s set) part(load, peer string, of, to, warm func(result) float64) string {
	if peer == "compactor" {
		return ""
	}
	text := fmt.Sprintf("%.2f", s.ratio(load, "compactor", peer, of, to))
	if peer == "streams" {
		text += fmt.Sprintf(" (%.2f warm)", s.ratio(load, "compactor", peer, of, warm))
	}
	return text
}

func seconds(n float64) string { return fmt.Sprintf("%.2f", n) }

// grouped rounds to thousands, and groups digits.
func grouped(n float64) string {
	text := fmt.Sprintf("%.0f", n/1000)
	if at := len(text) - 3; at > 0 {
		text = text[:at] + "," + text[at:]
	}
	return text + ",000"
}

func dash(format string, n float64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf(format, n)
}
