package kafkatest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// Tests that share a cluster do not see one another's topics.
func TestReal_GivesEachTestItsOwnTopics(t *testing.T) {
	a, b := kafkatest.Real(t, 1), kafkatest.Real(t, 1)
	a.MakeTopics(2)
	b.MakeTopics(5)
	kafkatest.Produce(t, a.Config, &kgo.Record{Topic: a.Config.Topics().Events, Value: []byte("a")})
	if got := kafkatest.Consume(t, b.Config, b.Config.Topics().Events); len(got) != 0 {
		t.Errorf("%d records of another test are there", len(got))
	}
	if len(a.Config.Brokers) != len(b.Config.Brokers) || a.Config.Brokers[0] != b.Config.Brokers[0] {
		t.Errorf("two clusters were started: %v and %v", a.Config.Brokers, b.Config.Brokers)
	}
}

// A test that took down a shared cluster would fail others.
func TestReal_LetsNobodyTouchNodesThatOthersUse(t *testing.T) {
	said := &fatal{TB: t}
	c := kafkatest.Real(said, 1)
	for name, touch := range map[string]func(int){"Kill": c.Kill, "Stop": c.Stop, "Pause": c.Pause, "Resume": c.Resume, "Up": c.Up} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			touch(1)
		}()
		<-done
		if !strings.HasPrefix(said.text, name+": other tests run on this cluster") {
			t.Errorf("%s of a shared node says %q", name, said.text)
		}
	}
	c.MakeTopics(1) // it answers
}

// fatal keeps what a test would have ended with.
type fatal struct {
	testing.TB
	text string
}

// Fatalf implements testing.TB.
func (f *fatal) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
