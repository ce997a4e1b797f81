package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// child is a process that is measured from outside. What it says goes to a file, whose end an error shows.
type child struct {
	cmd   *exec.Cmd
	log   string
	out   bytes.Buffer
	ended chan struct{} // closed when it is gone, err is then how
	err   error
	peak  int64 // bytes, as last asked
}

func (b *bench) start(ctx context.Context, program string, args ...string) (*child, error) {
	log, err := os.CreateTemp(b.dir, filepath.Base(program)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	c := &child{cmd: exec.CommandContext(ctx, program, args...), log: log.Name(), ended: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = process.Environment(), &c.out, log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// used is its processor time so far, in seconds.
func (c *child) used() (float64, error) {
	t, err := process.ProcessorTimeOf(c.cmd.Process.Pid)
	if err != nil {
		return 0, c.failed(err)
	}
	if n, err := process.MemoryOf(c.cmd.Process.Pid, "VmHWM:"); err == nil { // not of one that has just ended
		c.peak = max(c.peak, n)
	}
	return t.Seconds(), nil
}

func (c *child) failed(err error) error {
	said, e := os.ReadFile(c.log)
	return fmt.Errorf("%s: %w\n%s", filepath.Base(c.cmd.Path), errors.Join(err, e), said[max(0, len(said)-2000):])
}

// wait waits for its end and returns the processor seconds of its whole life.
func (c *child) wait(ctx context.Context) (cpu float64, err error) {
	for {
		select {
		case <-c.ended:
			if c.err != nil {
				return 0, c.failed(c.err)
			}
			return (c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()).Seconds(), nil
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), c.end())
		case <-time.After(10 * time.Millisecond):
			_, _ = c.used() // for its peak; it may just have ended
		}
	}
}

// end ends it as an orchestrator does. How it ends says nothing of what was measured.
func (c *child) end() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.ended:
		return nil
	case <-time.After(time.Minute):
		return errors.Join(c.failed(errors.New("it does not end on SIGTERM")), c.cmd.Process.Kill())
	}
}

// drain measures a process that reads all events as a group, from outside, until all are decided. Rates count from the first commit that
// is seen: what came before is the start of a process. Warm figures leave out the first quarter. Processor time goes on until all is
// written that the process has put off.
func (b *bench) drain(ctx context.Context, c *child, group string, committing func()) (r result, err error) {
	type sample struct {
		at  time.Time
		n   int64
		cpu float64
	}
	var first, quarter sample
	total, latest, moved := int64(b.events), int64(0), time.Now()
	for {
		select {
		case <-c.ended:
			return r, c.failed(fmt.Errorf("it ended: %v", c.cmd.ProcessState))
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		committed, decided := b.offsets(ctx, group)
		now := sample{n: decided, at: time.Now()}
		if now.cpu, err = c.used(); err != nil {
			return r, err
		}
		if now.n > latest {
			latest, moved = now.n, now.at
		} else if now.at.Sub(moved) > time.Minute {
			return r, c.failed(fmt.Errorf("for a minute it has committed %d of %d events", now.n, total))
		}
		if first.n == 0 && now.n > 0 {
			if first = now; committing != nil {
				committing()
			}
		}
		if quarter.n == 0 && now.n >= total/4 {
			quarter = now
		}
		if now.n >= total && r.Events == 0 {
			r.Events = b.events
			if now.n > first.n && now.n > quarter.n { // a small load may be one commit
				r.Rate = float64(now.n-first.n) / now.at.Sub(first.at).Seconds()
				r.WarmCPU = (now.cpu - quarter.cpu) * 1e6 / float64(now.n-quarter.n)
				r.WarmRate = float64(now.n-quarter.n) / now.at.Sub(quarter.at).Seconds()
			}
		}
		if committed >= total {
			r.CPU, r.MiB = now.cpu*1e6/float64(total), float64(c.peak>>20)
			return r, nil
		}
	}
}

// offsets are the sums of a group's offsets of the events. The compactor's are held back by snapshots that are not written yet; their
// metadata say how far it has decided.
func (b *bench) offsets(ctx context.Context, group string) (committed, decided int64) {
	offsets, err := b.admin.FetchOffsets(ctx, group)
	if err != nil { // the coordinator is not there yet
		return 0, 0
	}
	for _, o := range offsets[b.cfg.Topics().Events] {
		done := max(0, o.At)
		committed += done
		if m, err := record.ParseMetadata(o.Metadata); err == nil {
			done = m.Processed
		}
		decided += done
	}
	return committed, decided
}

// onDisk is what lies on the broker's disk of topics, as a share of the events.
func (b *bench) onDisk(ctx context.Context, topics ...string) (float64, error) {
	all, err := b.admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, err
	}
	bytes := map[string]int64{}
	all.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(t kadm.DescribedLogDirPartition) { bytes[t.Topic] += t.Size })
	})
	var sum int64
	for _, t := range topics {
		sum += bytes[t]
	}
	return float64(sum) / float64(bytes[b.cfg.Topics().Events]), nil
}

func (b *bench) consumer(ctx context.Context, _ int) (r result, err error) {
	c, err := b.start(ctx, b.self, "yardstick", "consumer", strings.Join(b.cfg.Brokers, ","), b.cfg.Topics().Events, strconv.Itoa(b.events))
	if err != nil {
		return r, err
	}
	cpu, err := c.wait(ctx)
	if err != nil {
		return r, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(c.out.String()), 64)
	return result{Events: b.events, CPU: cpu * 1e6 / float64(b.events), Rate: float64(b.events) / seconds, MiB: float64(c.peak >> 20)}, err
}

func (b *bench) echo(ctx context.Context, round int) (r result, err error) {
	topic := fmt.Sprintf("%secho-%d", b.cfg.TopicPrefix, round)
	if err := b.topic(ctx, topic, nil); err != nil {
		return r, err
	}
	c, err := b.start(ctx, b.self, "yardstick", "echo", strings.Join(b.cfg.Brokers, ","), b.cfg.Topics().Events, topic)
	if err != nil {
		return r, err
	}
	return b.drained(ctx, c, topic, nil, topic)
}

// drained drains, ends the process, and adds what topics have on disk, which are then deleted.
func (b *bench) drained(ctx context.Context, c *child, group string, committing func(), topics ...string) (r result, err error) {
	r, err = b.drain(ctx, c, group, committing)
	if err = errors.Join(err, c.end()); err != nil {
		return r, err
	}
	if r.Written, err = b.onDisk(ctx, topics...); err != nil {
		return r, err
	}
	deleted, err := b.admin.DeleteTopics(ctx, topics...)
	return r, errors.Join(err, deleted.Error())
}

// compactor drains with a process of the one that is shipped.
func (b *bench) compactor(ctx context.Context, round int) (result, error) {
	r, err := b.compact(ctx, filepath.Join(b.bin, "compactor"), fmt.Sprintf("%s-%d", b.load.name, round))
	if err != nil {
		return r, err
	}
	topics := b.cfg.Topics()
	r.Written, err = b.onDisk(ctx, topics.Runs, topics.Snapshots, topics.DeadLetters)
	return r, err
}

// compact drains with a compactor that begins with the first event. Its topics stay as they are.
func (b *bench) compact(ctx context.Context, program, name string) (r result, err error) {
	if err := b.forget(ctx); err != nil {
		return r, err
	}
	c, admin, err := b.startCompactor(ctx, program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	profiled := make(chan error, 1)
	r, err = b.drain(ctx, c, b.cfg.CompactorGroup(), func() {
		if b.profiles != "" {
			go func() { profiled <- b.profile(ctx, admin, "profile?seconds=4", name+".cpu") }()
		}
	})
	if err != nil {
		return r, err
	}
	m, err := process.MetricsAt(admin)
	if err != nil {
		return r, err
	}
	r.Records = m["skein_compactor_record_bytes_total"] / m["skein_compactor_event_bytes_total"]
	if b.profiles != "" {
		return r, errors.Join(<-profiled, b.profile(ctx, admin, "allocs", name+".allocs"), b.profile(ctx, admin, "heap", name+".heap"))
	}
	return r, nil
}

func (b *bench) startCompactor(ctx context.Context, program string) (c *child, admin string, err error) {
	if admin, err = freeAddress(); err != nil {
		return nil, "", err
	}
	stores, err := os.MkdirTemp(b.dir, "stores-")
	if err != nil {
		return nil, "", err
	}
	c, err = b.start(ctx, program, "--brokers", strings.Join(b.cfg.Brokers, ","), "--topic-prefix", b.cfg.TopicPrefix,
		"--instance-id", "bench", "--dir", stores, "--admin-listen", admin, "--pprof")
	return c, admin, err
}

func (b *bench) profile(ctx context.Context, admin, what, name string) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("taking profile %s: %s", what, resp.Status)
	}
	f, err := os.Create(filepath.Join(b.profiles, name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// forget makes the derived topics and the compactor's group anew.
func (b *bench) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	topics := b.cfg.Topics()
	derived := []string{topics.Runs, topics.Snapshots, topics.DeadLetters}
	if _, err := b.admin.DeleteTopics(ctx, derived...); err != nil {
		return err
	}
	if err := again(ctx, func() error { // the broker learns of it a moment later, and until then has nothing to make
		there, err := b.admin.ListTopics(ctx, derived...)
		for _, t := range there {
			if t.Err == nil {
				err = fmt.Errorf("topic %s is still there", t.Topic)
			}
		}
		return err
	}); err != nil {
		return err
	}
	if err := again(ctx, func() error { // its last member's session has to end first
		r, err := b.admin.DeleteGroups(ctx, b.cfg.CompactorGroup())
		if err == nil && r.Error() != nil && !strings.Contains(r.Error().Error(), "GROUP_ID_NOT_FOUND") {
			err = r.Error()
		}
		return err
	}); err != nil {
		return err
	}
	return again(ctx, func() error {
		_, err := kafka.EnsureTopics(ctx, b.cfg, kafka.TopicSpec{Partitions: partitions})
		return err
	})
}

func (b *bench) topic(ctx context.Context, name string, settings map[string]*string) error {
	_, err := b.admin.CreateTopic(ctx, partitions, 1, settings, name)
	return err
}

// again asks until there is no error, or the context ends.
func again(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func freeAddress() (string, error) {
	ports, err := apache.FreePorts(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}
