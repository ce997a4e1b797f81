package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// nodes is the number of Kafka's nodes.
const nodes = 3

// fault is one thing done, and what was seen at that moment.
type fault struct {
	at     time.Duration
	kind   string
	target string
	// openRuns are those of the compactor that was struck, or of all where a broker was, by their own
	// metric just before.
	openRuns int
	// transaction is the state of the transaction that the fault cut into, as its coordinator has it
	// just after a compactor was struck and just before a broker is; "" where none was under way.
	transaction string
	// aftermath is what was done and seen then.
	aftermath string
	// recovery is from the end of the fault until all was ready again.
	recovery time.Duration
}

func (f *fault) counts() bool { return f.openRuns > 0 || f.transaction != "" }

// storm does faults until enough of them count.
type storm struct {
	fleet   *fleet
	cluster *kafkatest.RealCluster
	admin   *kadm.Client
	began   time.Time
	want    int
	log     func(format string, args ...any)

	mu      sync.Mutex
	faults  []*fault
	counted int
}

// act does one kind of fault. It notes each fault as it strikes.
type act func(ctx context.Context, s *storm, rng *rand.Rand) error

// The decks: each lane goes through one in a new order again and again.
var (
	compactorActs = []act{killed, killed, killedForLong, frozen, doubled, addedAndRemoved, restarted}
	brokerActs    = []act{brokerKilled, brokerKilled, brokerFrozen, brokerRestarted}
)

// rage runs two lanes of faults on compactors and one on brokers at the same time, so that faults meet;
// of three compactors one at least, and of three brokers two, are left alone. An error of one lane, as
// where a compactor does not come back, ends them all.
func (s *storm) rage(ctx context.Context, seed uint64) error {
	lanes, ctx := errgroup.WithContext(ctx)
	for lane, deck := range [][]act{compactorActs, compactorActs, brokerActs} {
		lanes.Go(func() error { return s.lane(ctx, rand.New(rand.NewPCG(seed, uint64(lane+1))), deck) })
	}
	return lanes.Wait()
}

func (s *storm) lane(ctx context.Context, rng *rand.Rand, deck []act) error {
	for {
		for _, i := range rng.Perm(len(deck)) {
			pause(ctx, between(rng, 500*time.Millisecond, 3*time.Second))
			if ctx.Err() != nil || s.enough() {
				return ctx.Err()
			}
			if err := deck[i](ctx, s, rng); err != nil {
				return err
			}
		}
	}
}

func (s *storm) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted >= s.want
}

// note adds a fault that has struck.
func (s *storm) note(f *fault) {
	f.at = time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	if f.counts() {
		s.counted++
	}
	s.log("%6.1fs %-28s %-12s open runs %3d, transaction %q (%d of %d)", f.at.Seconds(), f.kind, f.target, f.openRuns, f.transaction,
		s.counted, s.want)
}

// ended says of a fault what followed; f is not touched by others after that.
func (s *storm) ended(f *fault, recovery time.Duration, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.recovery, f.aftermath = recovery, fmt.Sprintf(format, args...)
}

// strike sends a signal to a member's process, in half of the cases just as a transaction of its begins.
func (s *storm) strike(ctx context.Context, rng *rand.Rand, m *member, kind string, sig syscall.Signal) (*fault, error) {
	inside := rng.IntN(2) == 0
	for {
		if err := s.fleet.revive(ctx, m); err != nil {
			return nil, err
		}
		f := &fault{kind: kind, target: m.name, openRuns: m.openRuns()}
		if inside {
			s.fleet.aim(ctx, m)
		}
		if sig == syscall.SIGTERM {
			f.transaction = s.fleet.transaction(ctx, m) // afterwards it has ended it itself
		}
		err := m.process.Signal(sig)
		if errors.Is(err, os.ErrProcessDone) { // just now, by itself
			<-m.process.Ended
			continue
		}
		if err != nil {
			return nil, err
		}
		if sig != syscall.SIGTERM {
			f.transaction = s.fleet.transaction(ctx, m)
		}
		s.note(f)
		return f, nil
	}
}

func killed(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.take(rng)
	defer s.fleet.giveBack(m)
	f, err := s.strike(ctx, rng, m, "compactor killed", syscall.SIGKILL)
	if err != nil {
		return err
	}
	down := between(rng, 0, 2*time.Second)
	pause(ctx, down)
	return s.startAgain(ctx, m, f, "started again after %.1f s", down.Seconds())
}

// killedForLong leaves a compactor dead until others have its partitions. Every other time its local
// stores are lost as well.
func killedForLong(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.take(rng)
	defer s.fleet.giveBack(m)
	f, err := s.strike(ctx, rng, m, "compactor killed for long", syscall.SIGKILL)
	if err != nil {
		return err
	}
	down := between(rng, 11*time.Second, 14*time.Second)
	pause(ctx, down)
	with := "with its folder"
	if rng.IntN(2) == 0 {
		with = "with an empty folder"
		if err := m.gone(ctx); err != nil {
			return err
		}
		if err := os.RemoveAll(m.dir); err != nil {
			return err
		}
	}
	return s.startAgain(ctx, m, f, "started again after %.1f s %s", down.Seconds(), with)
}

// frozen makes a zombie: a process that is thrown out of the group while it stands still, and then goes on.
func frozen(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.take(rng)
	defer s.fleet.giveBack(m)
	f, err := s.strike(ctx, rng, m, "compactor frozen", syscall.SIGSTOP)
	if err != nil {
		return err
	}
	still := between(rng, 12*time.Second, 20*time.Second)
	pause(ctx, still)
	began := time.Now()
	if err := m.process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	// A process that was thrown out may find that out only when it asks: so it stays ready for a moment.
	pause(ctx, 2*time.Second)
	if err = m.await(ctx); errors.Is(err, errEnded) {
		s.log("%s: %v", m.name, err)
		return s.startAgain(ctx, m, f, "went on after %.1f s, ended by itself, was started again", still.Seconds())
	}
	s.ended(f, time.Since(began), "went on after %.1f s", still.Seconds())
	return err
}

// doubled freezes a process, starts another with its ids, and lets the first one go on: that one must end.
func doubled(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.take(rng)
	defer s.fleet.giveBack(m)
	f, err := s.strike(ctx, rng, m, "compactor frozen and doubled", syscall.SIGSTOP)
	if err != nil {
		return err
	}
	old := m.process
	m.dir += "-twin" // the frozen process has the lock of its folder
	if err := s.fleet.start(m); err != nil {
		return err
	}
	still := between(rng, 3*time.Second, 9*time.Second)
	pause(ctx, still)
	began := time.Now()
	if err := old.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	select {
	case <-old.Ended:
	case <-m.process.Ended: // the brokers took it for the older one: one of the two goes on, that is what matters
		m.process, m.dir = old, strings.TrimSuffix(m.dir, "-twin")
		if err := s.fleet.await(ctx, m); err != nil {
			return err
		}
		s.ended(f, time.Since(began), "the first one went on after %.1f s, and its double had ended by itself", still.Seconds())
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("two processes go on as %s", m.name)
	}
	took := time.Since(began)
	if err := s.fleet.await(ctx, m); err != nil {
		return err
	}
	s.ended(f, time.Since(began), "the first one went on after %.1f s beside its double and ended by itself %.1f s later with exit code %d", still.Seconds(), took.Seconds(), old.ExitCode())
	return nil
}

// addedAndRemoved has a compactor join, which moves partitions, and takes it away again.
func addedAndRemoved(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.newMember()
	joined := &fault{kind: "compactor added", target: m.name, openRuns: s.fleet.openRuns()}
	began := time.Now()
	if err := s.fleet.start(m); err != nil {
		return err
	}
	s.note(joined)
	if err := s.fleet.await(ctx, m); err != nil {
		return err
	}
	s.ended(joined, time.Since(began), "ready")
	pause(ctx, between(rng, 4*time.Second, 8*time.Second))
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[rng.IntN(2)]
	f, err := s.strike(ctx, rng, m, "compactor removed", sig)
	if err != nil {
		return err
	}
	if err := m.gone(ctx); err != nil {
		return err
	}
	s.ended(f, 0, "by %s", name(sig))
	return nil
}

func restarted(ctx context.Context, s *storm, rng *rand.Rand) error {
	m := s.fleet.take(rng)
	defer s.fleet.giveBack(m)
	f, err := s.strike(ctx, rng, m, "compactor restarted", syscall.SIGTERM)
	if err != nil {
		return err
	}
	if err := m.gone(ctx); err != nil {
		return err
	}
	return s.startAgain(ctx, m, f, "ended with exit code %d, started again", m.process.ExitCode())
}

// startAgain starts a member whose process has ended or is about to.
func (s *storm) startAgain(ctx context.Context, m *member, f *fault, format string, args ...any) error {
	if err := m.gone(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := s.fleet.start(m); err != nil {
		return err
	}
	if err := s.fleet.await(ctx, m); err != nil {
		return err
	}
	s.ended(f, time.Since(began), format, args...)
	return nil
}

func brokerKilled(ctx context.Context, s *storm, rng *rand.Rand) error {
	return s.broker(ctx, rng, "broker killed", s.cluster.Kill, between(rng, time.Second, 6*time.Second))
}

func brokerRestarted(ctx context.Context, s *storm, rng *rand.Rand) error {
	return s.broker(ctx, rng, "broker restarted", s.cluster.Stop, 0)
}

func brokerFrozen(ctx context.Context, s *storm, rng *rand.Rand) error {
	return s.broker(ctx, rng, "broker frozen", s.cluster.Pause, between(rng, 4*time.Second, 12*time.Second))
}

// broker strikes a node, has it back after a while, and waits until all replicas are in sync: with two of
// three in sync the next fault would be a test of Kafka.
func (s *storm) broker(ctx context.Context, rng *rand.Rand, kind string, strike func(int), down time.Duration) error {
	node := 1 + rng.IntN(nodes)
	f := &fault{kind: kind, target: fmt.Sprintf("broker-%d", node), openRuns: s.fleet.openRuns()}
	s.fleet.mu.Lock()
	members := append([]*member(nil), s.fleet.free...)
	s.fleet.mu.Unlock()
	if len(members) > 0 && rng.IntN(2) == 0 {
		s.fleet.aim(ctx, members[rng.IntN(len(members))])
	}
	for _, m := range members {
		if f.transaction = s.fleet.transaction(ctx, m); f.transaction != "" {
			break
		}
	}
	strike(node)
	s.note(f)
	pause(ctx, down)
	began := time.Now()
	if kind == "broker frozen" {
		s.cluster.Resume(node)
	} else {
		s.cluster.Up(node)
	}
	if err := s.inSync(ctx); err != nil {
		return err
	}
	s.ended(f, time.Since(began), "back after %.1f s, in sync %.1f s later", down.Seconds(), time.Since(began).Seconds())
	return nil
}

// inSync waits until every partition, Kafka's own included, has all its replicas.
func (s *storm) inSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		behind := 0
		topics, err := s.admin.ListTopicsWithInternal(ctx)
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.ISR) < nodes || p.Leader < 0 {
				behind++
			}
		})
		if err == nil && len(topics) > 0 && behind == 0 {
			return nil
		}
		pause(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for replicas: %d partitions are behind: %w", behind, errors.Join(ctx.Err(), err))
		}
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// pause lets time pass: between faults it is time itself that matters.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func name(sig syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM"}[sig]
}
