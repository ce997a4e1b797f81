// Command capacity says what Skein takes for a load: partitions, replicas, memory, disk. Its unit costs are measured ones of docs/bench;
// flags put your own in their place.
//
//	go run ./bench/capacity -runs 200 -events 500
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
)

// load is what is asked of Skein.
type load struct {
	runs, events, eventBytes, textBytes, turns, open float64
	messages                                         float64
	rawDays, days                                    float64
	brokers, replicas                                float64 // copies of a topic, of ClickHouse's tables
	cores, busy, readers, leastCompactors            float64
}

// cost is what a unit of the load takes. Processor times are in µs.
type cost struct {
	ingestEvent                          float64
	compactorEvent, compactorRun         float64
	openRun, openText                    float64 // bytes in memory
	indexerRun, serverRun                float64
	kafkaEvent, kafkaRecord, localRecord float64 // bytes on disk, as shares of what is written
	clickhouseRun, clickhouseMessage     float64 // bytes on disk
	clickhouseText                       float64 // bytes on disk, as a share of the text
	rebuild                              pace    // of a compactor that reads into empty local stores
	index                                pace    // of an indexer that works off a backlog
}

// pace is how many runs, and how many bytes of their records, were read in a second. How it goes with larger records was not measured:
// bytes may well go faster, so what they take is a bound.
type pace struct{ runs, bytes float64 }

// seconds is what so many runs take, by their number or by their bytes, whichever is longer.
func (p pace) seconds(runs, bytesEach float64) float64 {
	return runs * max(1/p.runs, bytesEach/p.bytes)
}

const (
	kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	day           = 86400
	whole         = 32 * kib // a conversation below this is written with every turn
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // a command of its own
	}
}

func run(args []string, stdout io.Writer) error {
	l, c := parse(args)
	return l.plan(c).write(stdout)
}

func parse(args []string) (l load, c cost) {
	f := flag.NewFlagSet("capacity", flag.ExitOnError)
	for _, v := range []struct {
		to    *float64
		name  string
		is    float64
		usage string
	}{
		{&l.runs, "runs", 200, "runs a second"},
		{&l.events, "events", 500, "events of a run"},
		{&l.eventBytes, "event-bytes", 130, "bytes of an event as JSON"},
		{&l.textBytes, "text-bytes", 2500, "bytes of the messages that a run adds to its conversation"},
		{&l.messages, "messages", 2, "messages that a run adds to its conversation"},
		{&l.turns, "turns", 10, "runs of a thread"},
		{&l.open, "open", 20, "seconds from a run's first event to its last one"},
		{&l.rawDays, "raw-days", 30, "days that skein.events keeps events"},
		{&l.days, "days", 365, "days that histories are kept"},
		{&l.brokers, "copies", 3, "copies of each topic"},
		{&l.replicas, "replicas", 2, "replicas of ClickHouse"},
		{&l.cores, "cores", 2, "processors of a pod"},
		{&l.busy, "busy", 0.5, "share of them that is used: the rest works off what an outage left"},
		{&l.leastCompactors, "compactors", 1, "compactors at least"},
		{&l.readers, "readers", 1000, "live streams of query that are read at a time"},
		{&c.ingestEvent, "ingest-us", 65, "µs that ingest takes an event: 65 in the proxy, at most 9 in batches of 100 (ingest.md)"},
		{&c.compactorEvent, "compactor-us", 5, "µs that the compactor takes an event (compactor.md)"},
		{&c.compactorRun, "compactor-run-us", 115, "µs that its local store takes a run (compactor.md)"},
		{&c.openRun, "open-run-bytes", 5.5 * kib, "bytes of an open run in memory (compactor.md)"},
		{&c.openText, "open-text", 1.03, "bytes in memory of a byte of its text"},
		{&c.indexerRun, "indexer-us", 140, "µs that the indexer takes a run, of 2.8 KB (indexer.md)"},
		{&c.serverRun, "clickhouse-us", 160, "µs that ClickHouse takes a run, of 2.8 KB, with merges (indexer.md)"},
		{&c.kafkaEvent, "kafka-event", 0.2, "bytes on a broker's disk of a byte of events: measure yours (compactor.md)"},
		{&c.kafkaRecord, "kafka-record", 0.5, "bytes on a broker's disk of a byte of records (compactor.md)"},
		{&c.localRecord, "local-record", 0.66, "bytes in local stores of a byte of records (compactor.md)"},
		{&c.clickhouseRun, "clickhouse-run", 463, "bytes of a run in ClickHouse, merged, without its messages (analytics.md)"},
		{&c.clickhouseMessage, "clickhouse-message", 112, "bytes of a message there, with the index of words and a short text (analytics.md)"},
		{&c.clickhouseText, "clickhouse-text", 0.37, "bytes there of a byte of text: the most of recorded runs, 307 of 836 (analytics.md)"},
		{&c.rebuild.runs, "rebuild", 12000, "runs a second that a compactor reads into empty local stores (compactor.md)"},
		{&c.rebuild.bytes, "rebuild-bytes", 15 * mib, "and at most so many bytes of their records (compactor.md)"},
		{&c.index.runs, "index", 6000, "runs a second that an indexer works off (indexer.md)"},
		{&c.index.bytes, "index-bytes", 15 * mib, "and at most so many bytes of their records (indexer.md)"},
	} {
		f.Float64Var(v.to, v.name, v.is, v.usage)
	}
	_ = f.Parse(args) // it exits
	return l, c
}

// plan is what the load takes. Processors are those in use, of all processes of a stage.
type plan struct {
	load

	eventRate, openRuns, kept        float64 // a second, at a time, in the end
	partitions, queries              float64
	ingests, ingestCores             float64
	compactors, compactorCores       float64
	openRunBytes, compactorMemory    float64 // of one
	stored, written                  float64 // bytes of records, of a run
	indexers, indexerCores, parts    float64
	serverCores, serverDisk, keys    float64 // of each replica
	eventsIn, recordsIn              float64 // bytes a second of each copy
	eventsDisk, runsDisk             float64 // bytes of all copies
	localDisk, rebuildHours, reindex float64 // of one; hours
}

func (l load) plan(c cost) plan {
	p := plan{load: l, eventRate: l.runs * l.events, openRuns: l.runs * l.open, kept: l.runs * day * l.days}
	pods := func(cores float64) float64 { return max(1, math.Ceil(cores/l.busy/l.cores)) }

	p.ingestCores = p.eventRate * c.ingestEvent / 1e6
	p.ingests = max(2, pods(p.ingestCores), math.Ceil(p.openRuns/5000)) // as many streams were measured

	p.compactorCores = (p.eventRate*c.compactorEvent + l.runs*c.compactorRun) / 1e6
	p.compactors = max(l.leastCompactors, pods(p.compactorCores))
	p.openRunBytes = max(256*mib, p.openRuns*(c.openRun+c.openText*l.textBytes)/p.compactors)
	p.compactorMemory = 2*gib + 3*(p.openRunBytes-256*mib)
	p.partitions = 12
	for p.partitions < 2*p.compactors {
		p.partitions *= 2
	}

	p.stored, p.written = l.records()
	p.localDisk = p.kept * p.stored * c.localRecord / p.compactors
	p.rebuildHours = c.rebuild.seconds(p.kept/p.compactors, p.stored) / 3600
	p.eventsIn = p.eventRate * l.eventBytes * c.kafkaEvent
	p.eventsDisk = p.eventsIn * day * l.rawDays * l.brokers
	p.recordsIn = l.runs * p.written * c.kafkaRecord
	p.runsDisk = p.kept * p.stored * c.kafkaRecord * l.brokers

	p.queries = max(2, math.Ceil(l.readers/1000)) // so many, of 10 events a second, were measured on two processors (live.md)

	p.indexerCores = l.runs * c.indexerRun / 1e6
	p.indexers = max(pods(p.indexerCores), math.Ceil(c.index.seconds(l.runs, p.stored)/l.busy))
	p.parts = p.indexers * 7 / 0.5 // tables, by --max-delay
	p.reindex = c.index.seconds(p.kept/p.indexers, p.stored) / 3600
	p.serverCores = l.runs * c.serverRun / 1e6
	p.serverDisk = p.kept * (c.clickhouseRun + l.messages*c.clickhouseMessage + l.textBytes*c.clickhouseText)
	p.keys = p.kept * 0.6 // of the primary key of runs: 3 MB for 5 million
	return p
}

// records returns the bytes that skein.runs keeps of a run and those that are written: its record and, with the branch, the conversation so
// far, whole in each turn while it is small and again whenever it has doubled (docs/bench/bytes-per-turn.md).
func (l load) records() (stored, written float64) {
	stored = 2*l.textBytes + 1000
	small := min(l.turns, whole/l.textBytes)
	written = stored + l.textBytes*small*small/2/l.turns
	if l.turns > small {
		written += l.textBytes
	}
	return stored, written
}

func (p plan) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("load", "%s events/s, %s runs open, %s runs in %.0f days", short(p.eventRate), short(p.openRuns), short(p.kept), p.days)
	row("partitions", "%.0f", p.partitions)
	row("ingest", "%.0f × 768 MiB; %.2f processors", p.ingests, p.ingestCores)
	row("compactor", "%.0f × %.1f GiB, --open-run-bytes %.0f MiB; %.2f processors; disk %sB, rebuilt in %.1f h at most", p.compactors,
		p.compactorMemory/gib, p.openRunBytes/mib, p.compactorCores, short(p.localDisk), p.rebuildHours)
	row("Kafka", "a copy: events %sB/s, records %sB/s; disk of all %.0f: events %sB, records %sB", short(p.eventsIn), short(p.recordsIn),
		p.brokers, short(p.eventsDisk), short(p.runsDisk))
	row("indexer", "%.0f × 1 GiB; %.2f processors; %.0f parts/s; a new index in %.1f h at most", p.indexers, p.indexerCores, p.parts,
		p.reindex)
	row("query", "%.0f × 1 GiB", p.queries)
	row("ClickHouse", "%.0f replicas, each: disk %sB; %.2f processors to write; keys of runs %sB", p.replicas,
		short(p.serverDisk), p.serverCores, short(p.keys))
	return t.Flush()
}

// short writes a number with two digits or three, and a letter for thousands.
func short(v float64) string {
	letters := []string{"", "k", "M", "G", "T", "P"}
	i := 0
	for ; v >= 1000 && i < len(letters)-1; i++ {
		v /= 1000
	}
	if v < 10 && i > 0 {
		return fmt.Sprintf("%.1f %s", v, letters[i])
	}
	return fmt.Sprintf("%.0f %s", v, letters[i])
}
