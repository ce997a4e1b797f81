package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/test/process"
)

// fleet is the compactors, each a process of the built binary.
type fleet struct {
	t     *testing.T
	bin   string
	kafka kafka.Config
	admin *kadm.Client
	dir   string

	mu sync.Mutex
	// members are those that are there to stay, free those of them that no fault is at.
	members, free []*member
	extra         int
	// started is told of each process, if it is not nil.
	started func(*member)
	// fenced counts the compactors that ended as fenced without a double, and were started anew.
	fenced int
}

// member is one name in the group, and the process that has it at the time.
type member struct {
	name, dir string
	process   *process.Process
}

func newFleet(t *testing.T, bin string, cfg kafka.Config, admin *kadm.Client) *fleet {
	return &fleet{t: t, bin: bin, kafka: cfg, admin: admin, dir: t.TempDir()}
}

// addMember starts a compactor that is there to stay.
func (f *fleet) addMember(ctx context.Context) error {
	m := f.newMember()
	f.members, f.free = append(f.members, m), append(f.free, m)
	return errors.Join(f.start(m), m.await(ctx))
}

func (f *fleet) newMember() *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extra++
	name := "compactor-" + strconv.Itoa(f.extra)
	return &member{name: name, dir: filepath.Join(f.dir, name)}
}

// start starts the member's process, as in production but for checkpoints, which come more often: a run
// of the load lasts for seconds.
func (f *fleet) start(m *member) error {
	var err error
	m.process, err = process.Start(f.t, f.dir, filepath.Join(f.bin, "compactor"),
		"--brokers", strings.Join(f.kafka.Brokers, ","), "--topic-prefix", f.kafka.TopicPrefix,
		"--admin-listen", "127.0.0.1:0", "--dir", m.dir, "--instance-id", m.name,
		"--checkpoint-interval", "1s")
	if err == nil && f.started != nil {
		f.started(m)
	}
	return err
}

// take gives any member to a fault, which gives it back.
func (f *fleet) take(rng *rand.Rand) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := rng.IntN(len(f.free))
	m := f.free[i]
	f.free = append(f.free[:i], f.free[i+1:]...)
	return m
}

func (f *fleet) giveBack(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, m)
}

// transaction asks the coordinator for the state of a member's transaction: "" where there is none under way.
func (f *fleet) transaction(ctx context.Context, m *member) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	id := f.kafka.TopicPrefix + "skein-compactor-" + m.name
	described, err := f.admin.DescribeTransactions(ctx, id)
	if err != nil {
		return ""
	}
	switch d := described[id]; {
	case d.Err != nil:
		return ""
	case d.State == "Ongoing", strings.HasPrefix(d.State, "Prepare"):
		return d.State
	}
	return ""
}

// aim waits for a transaction of the member to begin, for a while.
func (f *fleet) aim(ctx context.Context, m *member) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if f.transaction(ctx, m) != "" {
			return
		}
	}
}

// openRuns are those that the members hold open by their own metric.
func (f *fleet) openRuns() int {
	f.mu.Lock()
	members := append([]*member(nil), f.free...)
	f.mu.Unlock()
	n := 0
	for _, m := range members {
		n += m.openRuns()
	}
	return n
}

// openRuns asks a process how many runs it holds open; 0 where it does not answer.
func (m *member) openRuns() int {
	metrics, _ := m.process.ReadMetrics() // as above
	return int(metrics["skein_compactor_open_runs"])
}

// await waits until the member's process is ready.
func (m *member) await(ctx context.Context) error {
	deadline := time.Now().Add(process.Patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	client := http.Client{Timeout: time.Second}
	last := "it has not said where it listens"
	for time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", m.name, ctx.Err())
		case <-m.process.Ended:
			return fmt.Errorf("waiting for %s: %w with exit code %d:\n%s", m.name, errEnded, m.process.ExitCode(), m.process.Tail())
		case <-tick.C:
		}
		address, ok := m.process.Logged("started", "admin")
		if !ok {
			continue
		}
		resp, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			last = err.Error()
			continue
		}
		_ = resp.Body.Close() // not read
		if last = resp.Status; resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("waiting for %s: not ready after %v: %s", m.name, process.Patience, last)
}

// await waits until the member is ready. Where its coordinator stands still or is gone, a process may be told that its ids
// have another owner, though there is none. It ends, and is started anew, as its orchestrator would.
func (f *fleet) await(ctx context.Context, m *member) error {
	err := m.await(ctx)
	if errors.Is(err, errEnded) && strings.Contains(m.process.Tail(), compactor.ErrFenced.Error()) {
		f.t.Logf("%s ended as fenced, and is started again", m.name)
		f.mu.Lock()
		f.fenced++
		f.mu.Unlock()
		err = errors.Join(f.start(m), m.await(ctx))
	}
	return err
}

// revive starts a member anew that has ended as fenced while no fault was at it: the faults on brokers are everybody's.
func (f *fleet) revive(ctx context.Context, m *member) error {
	select {
	case <-m.process.Ended:
		return f.await(ctx, m)
	default:
		return nil
	}
}

// gone waits for the end of a process that was told to end. A second signal would make it quit at once.
func (m *member) gone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.Patience)
	defer cancel()
	select {
	case <-m.process.Ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of %s: %w", m.name, ctx.Err())
	}
}

var errEnded = errors.New("it ended by itself")
