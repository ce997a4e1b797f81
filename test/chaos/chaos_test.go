package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

var (
	seedFlag   = flag.Uint64("chaos.seed", 0, "decides what is done and sent, where time does not; 0 draws one")
	faultsFlag = flag.Int("chaos.faults", 20, "how many faults that count are done")
	reportFlag = flag.String("chaos.report", "", "file to write a report to")
)

const (
	partitions = 12
	compactors = 3
)

// Every run is sealed once, and every record is that of a fold without faults, whatever happens to
// compactors and brokers.
func TestChaos_EveryRunIsSealedOnceAndRight(t *testing.T) {
	partstest.SkipShort(t, "stages as processes")
	o := outcome{seed: seed(), wanted: *faultsFlag}
	t.Cleanup(func() { // the last of all: below what a dozen processes have logged
		for _, p := range o.wrong[:min(len(o.wrong), 5)] {
			reason, _, _ := strings.Cut(p, "\n")
			t.Logf("it failed: %.400s", reason)
		}
	})
	bin, err := process.Commands(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	endure(t, bin, &o)
	for i, p := range o.wrong {
		if i == 20 {
			t.Errorf("… %d more", len(o.wrong)-i)
			break
		}
		t.Error(p)
	}
	report(t, o.report(), os.O_TRUNC)
}

// seed is one for all tests of the process.
var seed = sync.OnceValue(func() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64()
})

// report writes to the report, if one is asked for.
func report(t *testing.T, text []byte, mode int) {
	t.Helper()
	if *reportFlag == "" {
		return
	}
	f, err := os.OpenFile(*reportFlag, os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// outcome is all that is known about a storm when it is over.
type outcome struct {
	seed   uint64
	wanted int

	kafka   string
	faults  []*fault
	counted int
	figures figures
	wrong   []string
	fenced  int           // compactors that ended as fenced without a double
	raged   time.Duration // the faults
	drained time.Duration // from the end of the load
}

// endure puts compactors of one build through a storm under load.
func endure(t *testing.T, bin string, o *outcome) {
	t.Helper()
	t.Logf("for these faults again: -chaos.seed=%d -chaos.faults=%d", o.seed, o.wanted)
	cluster := kafkatest.Real(t, nodes, kafkatest.Own())
	o.kafka = cluster.Version
	cluster.MakeTopics(partitions)
	cfg := cluster.Config
	admin := kafkatest.Admin(t, cfg)

	fleet := newFleet(t, bin, cfg, admin)
	for range compactors {
		if err := fleet.addMember(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	load, err := newLoad(cfg, partitions, rand.New(rand.NewPCG(o.seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer load.client.Close()
	stop, loaded := make(chan struct{}), make(chan error, 1)
	go func() { loaded <- load.run(t.Context(), stop) }()

	s := &storm{fleet: fleet, cluster: cluster, admin: admin, began: time.Now(), want: o.wanted, log: t.Logf}
	pause(t.Context(), 5*time.Second) // until there is something to lose
	err = s.rage(t.Context(), o.seed)
	o.faults, o.counted, o.raged = s.faults, s.counted, time.Since(s.began)
	close(stop)
	if err := errors.Join(err, <-loaded); err != nil {
		o.wrong = append(o.wrong, err.Error())
	}
	ended := time.Now()
	o.wrong = append(o.wrong, drained(t.Context(), cfg, admin, 2*time.Minute)...)
	o.drained = time.Since(ended)
	for _, m := range fleet.members {
		if err := fleet.revive(t.Context(), m); err != nil {
			o.wrong = append(o.wrong, err.Error())
		}
	}
	if o.fenced = fleet.fenced; o.fenced > 1+o.wanted/20 {
		o.wrong = append(o.wrong, fmt.Sprintf("%d compactors ended as fenced without a double, which is more than %d", o.fenced, 1+o.wanted/20))
	}
	t.Logf("%d faults in %v; %d compactors started anew that ended as fenced; drained after %v",
		len(o.faults), o.raged.Round(time.Second), o.fenced, o.drained.Round(time.Second))
	c := &check{t: t, cfg: cfg, load: load}
	c.all()
	o.figures, o.wrong = c.figures, append(o.wrong, c.wrong...)
	t.Logf("%+v", o.figures)
}
