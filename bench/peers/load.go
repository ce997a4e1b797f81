package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	partitions = 4
	liveRuns   = 200 // threads that speak at a time
	turns      = 10  // runs of a thread of load A
)

// load is what agents send: threads, some of which speak at a time. The same bytes come out each time.
type load struct {
	name    string
	threads int
	thread  func(n int) iter.Seq[message]
}

// message is a record of a thread.
type message struct {
	thread, run string
	kind        record.Kind
	seq         int64
	value       []byte
}

func (m message) record() (*kgo.Record, error) {
	key, err := record.ThreadKey("acme", m.thread)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{Key: []byte(key), Partition: record.Partition([]byte(key), partitions), Value: m.value,
		Headers: kafka.Headers(record.Headers{Kind: m.kind, RunID: m.run, Seq: m.seq})}, nil
}

// made is load A: runs of 503 events, or of fewer with fewer deltas, most of which are deltas of one message.
func made(runs, deltas int) load {
	return load{name: "A", threads: max(1, runs/turns), thread: func(n int) iter.Seq[message] {
		return func(yield func(message) bool) {
			for turn := range turns {
				thread, run, events := makeRun(n, turn, deltas)
				for seq, value := range events {
					if !yield(message{thread, run, record.KindEvent, int64(seq), value}) {
						return
					}
				}
			}
		}
	}}
}

// recorded is load B: the recordings of real frameworks, each so many times under fresh ids, with their inputs.
func recorded(copies int) load {
	all := recordings.All()
	ids := make([]map[string]bool, len(all)) // of each thread
	for i, t := range all {
		ids[i] = map[string]bool{t.ThreadID: true}
		for _, r := range t.Runs {
			ids[i][r.RunID] = true
			for _, at := range idMember.FindAllSubmatch(append(bytes.Clone(r.Input), r.Events...), -1) {
				ids[i][string(at[1])] = true
			}
		}
	}
	return load{name: "B", threads: copies * len(all), thread: func(n int) iter.Seq[message] {
		return func(yield func(message) bool) {
			t, ids := all[n%len(all)], ids[n%len(all)]
			for _, r := range t.Runs {
				run := fresh(r.RunID, n)
				put := func(kind record.Kind, seq int, value []byte) bool {
					return yield(message{fresh(t.ThreadID, n), run, kind, int64(seq), renamed(value, ids, n)})
				}
				var input bytes.Buffer
				if err := json.Compact(&input, r.Input); err != nil {
					panic(err) // the recordings are whole: a test of theirs says so
				}
				if !put(record.KindInput, -1, input.Bytes()) {
					return
				}
				for seq, event := range r.Lines() {
					if !put(record.KindEvent, seq, event) {
						return
					}
				}
			}
		}
	}}
}

var idMember = regexp.MustCompile(`"\w*[iI]d"\s*:\s*"([^"\\]{6,})"`)

// fresh is the id of the n-th copy, as long as the recorded one if that has 16 characters.
func fresh(id string, n int) string {
	h := fnv.New64a()
	fmt.Fprint(h, id, n)
	return fmt.Sprintf("%s%016x", id[:max(0, len(id)-16)], h.Sum64())
}

// renamed is a copy of JSON in which each string that is one of the ids is that of the n-th copy.
func renamed(value []byte, ids map[string]bool, n int) []byte {
	parts := strings.Split(string(value), `"`)
	for i, part := range parts {
		if ids[part] {
			parts[i] = fresh(part, n)
		}
	}
	return []byte(strings.Join(parts, `"`))
}

// each gives out all records in the order in which they are sent, as if the threads spoke at random; no two end together.
func (l load) each(yield func(message) bool) {
	type speaker struct {
		next func() (message, bool)
		stop func()
	}
	opened, rng := 0, rand.New(rand.NewPCG(1, 2))
	var open []speaker
	defer func() {
		for _, s := range open {
			s.stop()
		}
	}()
	// say lets a thread speak; another one takes its place behind its end.
	say := func(i, records int) bool {
		for range records {
			m, ok := open[i].next()
			switch {
			case ok && !yield(m):
				return false
			case !ok && opened < l.threads:
				open[i].next, open[i].stop = iter.Pull(l.thread(opened))
				opened++
			case !ok:
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
				return true
			}
		}
		return true
	}
	for ; opened < min(liveRuns, l.threads); opened++ {
		next, stop := iter.Pull(l.thread(opened))
		open = append(open, speaker{next, stop})
	}
	for i := range open {
		if i < len(open) && !say(i, i*500/liveRuns) {
			return
		}
	}
	for len(open) > 0 {
		if !say(rng.IntN(len(open)), 1+rng.IntN(3)) {
			return
		}
	}
}

// write puts the events one run after another into a file, one a line, with an empty line behind each run, and says how many they are.
// Inputs are left out: what reads it takes events.
func (l load) write(name string) (n int, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // closed below, where it matters
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range l.threads {
		run := ""
		for m := range l.thread(i) {
			if run != "" && m.run != run {
				w.WriteByte('\n')
			}
			run = m.run
			if m.kind == record.KindEvent {
				w.Write(m.value)
				w.WriteByte('\n')
				n++
			}
		}
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		return n, err
	}
	return n, f.Close()
}

// send produces records in large batches with lz4, at a pace a second or, at 0, as fast as it goes, and returns how many. Said is called
// once a record is acknowledged.
func send(ctx context.Context, cfg kafka.Config, all iter.Seq[message], pace int, said func(message)) (n int, err error) {
	producer, err := kafka.NewProducer(cfg, kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	var refused atomic.Pointer[error]
	began := time.Now()
	for m := range all {
		r, err := m.record()
		if err != nil {
			return n, err
		}
		if r.Topic = cfg.Topics().Events; pace > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(pace))))
		}
		n++
		producer.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				refused.Store(&err)
			} else if said != nil {
				said(m)
			}
		})
		if refused.Load() != nil {
			return n, *refused.Load()
		}
	}
	if err := producer.Flush(ctx); err != nil {
		return n, err
	}
	if err := refused.Load(); err != nil {
		return n, *err
	}
	return n, nil
}

var words = strings.Fields(`the a of and to in is that it with as for was on are be this have from or one had by word but not what all were we
when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him
into time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get
come made may part stream event partition offset commit snapshot agent tool branch lineage state thread message compact replay index cluster
broker consumer producer latency throughput naïve façade — “quoted” résumé 東京 🙂 \n\n **bold** ` + "`code`" + ` - list {json: 1} https://example.com/path?q=1`)

func uuid(r *rand.Rand) string {
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", uint32(a), uint16(a>>32), (a>>48)&0xfff, b&0xfff, (b>>12)&0xffffffffffff)
}

// text is n bytes and a little more of words, as a JSON string.
func text(r *rand.Rand, n int) string {
	b := []byte{'"'}
	for len(b) <= n {
		b = append(append(b, words[r.IntN(len(words))]...), ' ')
	}
	return string(append(b, '"'))
}

// makeRun is a run of load A: an input of one question, a state with five deltas, a message of so many deltas, a tool call.
func makeRun(n, turn, deltas int) (thread, run string, events [][]byte) {
	r := rand.New(rand.NewPCG(uint64(n*turns+turn), 7))
	thread, run = fmt.Sprintf("thread-%05d", n), "run-"+uuid(r)
	at := 1763717400000 + (n*turns+turn)*1000
	add := func(kind, members string, args ...any) {
		at += r.IntN(40)
		events = append(events, fmt.Appendf(nil, `{"type":%q,"timestamp":%d%s}`, kind, at, fmt.Sprintf(members, args...)))
	}
	message, call := "msg-"+uuid(r), "call-"+uuid(r)
	add("RUN_STARTED", `,"threadId":%q,"runId":%q,"protocolVersion":"1.0","input":{"threadId":%[1]q,"runId":%[2]q,"messages":[{"id":"msg-%[3]s","role":"user",`+
		`"content":%[4]s}],"state":{},"tools":[],"context":[],"forwardedProps":{}}`, thread, run, uuid(r), text(r, 120))
	add("STATE_SNAPSHOT", `,"snapshot":{"progress":0,"phase":"plan","steps":[{"name":"search","status":"pending"},{"name":"read","status":"pending"},`+
		`{"name":"write","status":"pending"}],"notes":[],"totals":{"tokens":0,"cost":0.5}}`)
	add("TEXT_MESSAGE_START", `,"messageId":%q,"role":"assistant"`, message)
	for i := range deltas {
		add("TEXT_MESSAGE_CONTENT", `,"messageId":%q,"delta":%s`, message, text(r, 18+r.IntN(20)))
		if i%90 == 89 {
			add("STATE_DELTA", `,"delta":[{"op":"replace","path":"/progress","value":%d},{"op":"replace","path":"/steps/%d/status","value":"done"},`+
				`{"op":"add","path":"/notes/-","value":%s},{"op":"replace","path":"/totals/tokens","value":%d}]`,
				(i/90+1)*20, i/90%3, text(r, 30), r.IntN(100000))
		}
	}
	add("TEXT_MESSAGE_END", `,"messageId":%q`, message)
	add("TOOL_CALL_START", `,"toolCallId":%q,"toolCallName":"web_search","parentMessageId":%q`, call, message)
	args := []rune(fmt.Sprintf(`{"query":%s,"limit":10,"site":"example.com","notes":%s}`, text(r, 100), text(r, 100)))
	for i := range 10 {
		part, err := json.Marshal(string(args[i*len(args)/10 : (i+1)*len(args)/10]))
		if err != nil {
			panic(err) // strings are JSON
		}
		add("TOOL_CALL_ARGS", `,"toolCallId":%q,"delta":%s`, call, part)
	}
	add("TOOL_CALL_END", `,"toolCallId":%q`, call)
	add("TOOL_CALL_RESULT", `,"messageId":"msg-%s","toolCallId":%q,"role":"tool","content":%s`, uuid(r), call, text(r, 250))
	add("RUN_FINISHED", `,"threadId":%q,"runId":%q,"outcome":{"type":"success"}`, thread, run)
	return thread, run, events
}
