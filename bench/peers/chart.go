package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	chartWidth, barHeight, gap = 880, 20, 8
	names, panel               = 170, 330 // width of the names, of each of the two panels
)

// chart draws the medians as an SVG for README: for each load, processor time and rate of all that have drained it. It takes its colours
// from the scheme of whoever looks, and its font from the system.
func (s set) chart() string {
	var b strings.Builder
	y := 10
	text := func(x, y int, class, format string, args ...any) {
		fmt.Fprintf(&b, "  <text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, fmt.Sprintf(format, args...))
	}
	for _, l := range loads {
		var there []struct{ peer, name, does string }
		most := [2]float64{}
		for _, w := range what {
			if len(s.each(l.name, w.peer, cpu)) > 0 {
				there = append(there, w)
				most[0], most[1] = max(most[0], s.median(l.name, w.peer, cpu)), max(most[1], s.median(l.name, w.peer, rate))
			}
		}
		if len(there) == 0 {
			continue
		}
		events := s.median(l.name, there[0].peer, func(r result) float64 { return float64(r.Events) })
		y += 18
		text(0, y, "head", "%s events: %s", grouped(events), l.is)
		y += 20
		text(names, y, "axis", "CPU seconds a million events: less is better")
		text(names+panel+30, y, "axis", "events a second: more is better")
		y += gap
		for _, w := range there {
			class := "other"
			if w.peer == "compactor" {
				class = "skein"
			}
			text(0, y+15, "name", "%s", w.name)
			for i, f := range []struct {
				whole, warm func(result) float64
				as          func(float64) string
			}{{cpu, warmCPU, seconds}, {rate, warmRate, grouped}} {
				x, value := names+i*(panel+30), s.median(l.name, w.peer, f.whole)
				width := max(1, int(value/most[i]*(panel-130)))
				fmt.Fprintf(&b, "  <rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" class=\"%s\"><title>%s: %s</title></rect>\n",
					x, y, width, barHeight, class, w.name, w.does)
				text(x+width+6, y+15, "value", "%s", s.both(l.name, w.peer, f.as, f.whole, f.warm))
			}
			y += barHeight + gap
		}
		y += gap
	}
	y += 14
	text(0, y, "axis", "Bare consumer: reads and discards. Bare echo: copies in transactions. Both franz-go. compactEvents reads a file, without Kafka.")
	y += 18
	text(0, y, "axis", "Kafka Streams: exactly once, public API; it folds texts, tool calls and state. Kafka %s and clients share %d processors; make bench-peers.",
		s.Machine.Kafka, s.Machine.Processors)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Processor time and rate of Skein's compactor beside others">
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .head { font-weight: 600 }
    .axis { font-size: 12px; fill: #59636e }
    .other { fill: #afb8c1 }
    .skein { fill: #0969da }
    @media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .axis { fill: #9198a1 } .other { fill: #57606a } .skein { fill: #4493f8 } }
  </style>
%s</svg>
`, chartWidth, y+12, b.String())
}

// show prints the table and draws the chart beside the file with the results.
func (s set) show(file string, stdout io.Writer) error {
	fmt.Fprint(stdout, s.table())
	return os.WriteFile(strings.TrimSuffix(file, ".jsonl")+".svg", []byte(s.chart()), 0o644)
}
