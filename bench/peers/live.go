package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

const (
	liveDeltas = 80               // of a run at a live pace: with 503 events a run, few would end
	patience   = 35 * time.Second // for what comes after the last event
)

// live sends events at a pace and measures, from the acknowledgement of a run's last event, when its record can be read, and when its
// thread has a snapshot of that run or a later one.
func (b *bench) live(ctx context.Context, _ int) (r result, err error) {
	if err := b.newSet(ctx); err != nil {
		return r, err
	}
	c, admin, err := b.startCompactor(ctx, filepath.Join(b.bin, "compactor"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	ready, cancel := context.WithTimeout(ctx, patience)
	err = again(ready, func() error { // the fence of each partition is written when it is open
		m, err := process.MetricsAt(admin)
		if err == nil && m["skein_compactor_records_total"] < partitions {
			err = errors.New("the compactor has not opened its partitions")
		}
		return err
	})
	cancel()
	if err != nil {
		return r, c.failed(err)
	}

	ends := endings{acked: map[string]time.Time{}, tips: map[string][]string{}, ended: map[string]time.Time{}}
	seeing, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	failed := make(chan error, 2)
	readers.Go(func() { failed <- follow(seeing, b.cfg, b.cfg.Topics().Runs, ends.record) })
	readers.Go(func() { failed <- follow(seeing, b.cfg, b.cfg.Topics().Snapshots, ends.snapshot) })
	before, err := c.used()
	if err != nil {
		return r, err
	}
	began := time.Now()
	l := made(max(1, b.pace*b.seconds/(liveDeltas+23)), liveDeltas)
	n, err := send(ctx, b.cfg, l.each, b.pace, ends.ack)
	if err != nil {
		return r, err
	}
	took := time.Since(began)
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := again(waiting, ends.missing); err != nil && len(ends.acked) > 0 {
		return r, c.failed(err)
	}
	after, err := c.used()
	stop()
	readers.Wait()
	ends.waited(time.Now())
	slices.Sort(ends.took)
	return result{Events: n, CPU: (after - before) * 1e6 / float64(n), Rate: float64(n) / took.Seconds(), MiB: float64(c.peak >> 20),
		P50: quantile(ends.took, .5), P99: quantile(ends.took, .99), Tip: ends.oldest.Seconds()}, errors.Join(err, <-failed, <-failed)
}

// endings are the runs that have ended, until what comes of them is seen.
type endings struct {
	mu     sync.Mutex
	acked  map[string]time.Time // when the last event of each run was acknowledged, unless its record was seen
	tips   map[string][]string  // of each thread, the runs that no snapshot is of yet, in order
	ended  map[string]time.Time // of these runs
	took   []time.Duration
	oldest time.Duration
}

func (e *endings) ack(m message) {
	if !bytes.HasPrefix(m.value, []byte(`{"type":"RUN_FINISHED"`)) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.acked[m.run] = now
	e.tips[m.thread] = append(e.tips[m.thread], m.run)
	e.ended[m.run] = now
}

func (e *endings) record(m *kgo.Record, now time.Time) {
	h, err := record.ParseHeaders(m.Headers)
	if err != nil || h.Kind != record.KindRun {
		return
	}
	if r, err := record.DecodeRun(m.Value); err != nil || !r.Status.Sealed() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.acked[h.RunID]
	if !ok {
		return
	}
	e.took = append(e.took, now.Sub(at))
	delete(e.acked, h.RunID)
}

func (e *endings) snapshot(m *kgo.Record, now time.Time) {
	ids, err := record.SplitKey(string(m.Key))
	h, e2 := record.ParseHeaders(m.Headers)
	if errors.Join(err, e2) != nil || ids[3] != "MESSAGES_SNAPSHOT" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	runs := e.tips[ids[1]]
	upTo := slices.Index(runs, h.RunID) + 1
	for _, run := range runs[:upTo] {
		e.oldest = max(e.oldest, now.Sub(e.ended[run]))
	}
	e.tips[ids[1]] = runs[upTo:]
}

// missing is an error while something that has ended was not seen.
func (e *endings) missing() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, runs := range e.tips {
		n += len(runs)
	}
	if n+len(e.acked) > 0 {
		return fmt.Errorf("of the runs that have ended, %d have no record and %d no snapshot", len(e.acked), n)
	}
	return nil
}

// waited counts tips that no snapshot is of as old as they are.
func (e *endings) waited(now time.Time) {
	for _, runs := range e.tips {
		for _, run := range runs {
			e.oldest = max(e.oldest, now.Sub(e.ended[run]))
		}
	}
}

// follow reads a topic from its start until the context ends.
func follow(ctx context.Context, cfg kafka.Config, topic string, see func(*kgo.Record, time.Time)) error {
	from := map[int32]int64{}
	for p := range int32(partitions) {
		from[p] = kafka.Earliest
	}
	for r, err := range kafka.Follow(ctx, cfg, topic, from) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		see(r, time.Now())
	}
	return nil
}

func quantile(sorted []time.Duration, share float64) (ms float64) {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Seconds() * 1000
}

// ingest and handler take the same requests, one after the other; the latter does nothing but produce.
func (b *bench) ingest(ctx context.Context, _ int) (result, error) {
	return b.posted(ctx, filepath.Join(b.bin, "ingest"), func(address, admin string) []string {
		return []string{"--brokers", strings.Join(b.cfg.Brokers, ","), "--topic-prefix", b.cfg.TopicPrefix, "--tenant", "acme",
			"--listen", address, "--admin-listen", admin}
	})
}

func (b *bench) handler(ctx context.Context, _ int) (result, error) {
	return b.posted(ctx, b.self, func(address, _ string) []string {
		return []string{"yardstick", "handler", strings.Join(b.cfg.Brokers, ","), b.cfg.Topics().Events, address}
	})
}

func (b *bench) posted(ctx context.Context, program string, args func(address, admin string) []string) (r result, err error) {
	if err := b.newSet(ctx); err != nil {
		return r, err
	}
	address, err := freeAddress()
	if err != nil {
		return r, err
	}
	admin, err := freeAddress()
	if err != nil {
		return r, err
	}
	c, err := b.start(ctx, program, args(address, admin)...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	if err := again(ready, func() error { return post(ctx, web, address, -1, 0) }); err != nil {
		return r, c.failed(err)
	}
	before, err := c.used()
	if err != nil {
		return r, err
	}
	var all sync.WaitGroup
	took, errs := make([][]time.Duration, callers), make([]error, callers)
	began := time.Now()
	for caller := range callers {
		all.Go(func() {
			for call := 0; time.Since(began) < time.Duration(b.seconds)*time.Second && errs[caller] == nil; call++ {
				at := time.Now()
				errs[caller] = post(ctx, web, address, caller, call)
				took[caller] = append(took[caller], time.Since(at))
			}
		})
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	after, err := c.used()
	calls := slices.Sorted(slices.Values(slices.Concat(took...)))
	n := len(calls) * batch
	return result{Events: n, CPU: (after - before) * 1e6 / float64(n), Rate: float64(n) / seconds, MiB: float64(c.peak >> 20),
		P50: quantile(calls, .5), P99: quantile(calls, .99)}, errors.Join(err, errors.Join(errs...))
}

const (
	callers = 32  // connections at a time
	batch   = 100 // events of a request
)

func post(ctx context.Context, web *http.Client, address string, caller, call int) error {
	var body bytes.Buffer
	for i := range batch {
		fmt.Fprintf(&body, `{"type":"TEXT_MESSAGE_CONTENT","timestamp":%d,"messageId":"%08x-7c1e-4b5a-9d3f-%012x","delta":"event %d of a call, with some more words, `+
			`so that it is as long as others"}`+"\n", 1767225600000+call, caller, call, i)
	}
	url := fmt.Sprintf("http://%s/v1/threads/thread-%d/runs/r/events", address, caller+1)
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &body)
	if err != nil {
		return err
	}
	ask.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := web.Do(ask)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answer is %s: %s", resp.Status, said)
	}
	return nil
}
