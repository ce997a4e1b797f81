package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// makeTopic makes a topic outside of any set.
func makeTopic(t *testing.T, s *dev.Server, name string) {
	t.Helper()
	adm := kafkatest.Admin(t, s.Kafka())
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, name); err != nil {
		t.Fatal(err)
	}
}

func TestReplay_PublishesToAnotherTopic(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		makeTopic(t, s, "tests")
		for _, thread := range []string{"t", "u"} {
			if _, err := c.PostEvents(t.Context(), thread, "r", client.TypeNDJSON, strings.NewReader(in(thread, eventStart+"\n"+eventText+"\n"+eventEnd))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		there := func() int { return len(kafkatest.Consume(t, s.Kafka(), "tests")) }
		to := func(args ...string) (string, string, int) {
			return skein(t, "", append([]string{"replay", "--to", "tests", "--brokers", s.Broker()}, args...)...)
		}
		stdout, stderr, code := to("--tenant", dev.Tenant, "--dry-run")
		if code != 0 || !strings.HasPrefix(stdout, "to publish to tests (2 partitions): 6 records, ") ||
			!strings.Contains(stdout, "types: CUSTOM 2, RUN_FINISHED 2, RUN_STARTED 2") || there() != 0 {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		if _, stderr, code := to("--tenant", dev.Tenant); code != app.ExitUsage || !strings.Contains(stderr, "stdin is not a terminal, so there is no confirmation: pass --yes") || there() != 0 {
			t.Errorf("exit %d, %s", code, stderr)
		}
		stdout, stderr, code = to("--tenant", dev.Tenant, "t", "--yes", "--type", "RUN_STARTED,RUN_FINISHED", "--json")
		var said struct {
			Records   int
			Published int
			Next      []string
		}
		if err := json.Unmarshal([]byte(stdout), &said); err != nil || code != 0 || said.Records != 2 || said.Published != 2 ||
			len(said.Next) != 1 || there() != 2 {
			t.Errorf("exit %d, %s%s (%v)", code, stdout, stderr, err)
		}
		stdout, stderr, code = to("--tenant", dev.Tenant, "u", "r", "--yes", "--range", position(t, s, "u", 0)+":end")
		if code != 0 || !strings.HasPrefix(stdout, "published: ") || !strings.Contains(stderr, "to publish to tests") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		for name, c := range map[string]struct {
			code int
			args []string
		}{
			"there is no such run": {app.ExitNotFound, []string{"--tenant", dev.Tenant, "t", "nobody", "--yes"}},
			"no such events":       {app.ExitNotFound, []string{"--tenant", dev.Tenant, "nowhere", "--yes"}},
			"lies on partition 99": {app.ExitUsage, []string{"--tenant", dev.Tenant, "t", "--range", "99:1", "--yes"}},
		} {
			if _, stderr, code := to(c.args...); code != c.code || !strings.Contains(stderr, name) {
				t.Errorf("%v: exit %d, %s", c.args, code, stderr)
			}
		}
	})
}

// Ctrl-C is how a replay that follows ends; one that does not says where to go on.
func TestReplay_EndsAtCtrlC(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		makeTopic(t, s, "followed")
		post := func() {
			t.Helper()
			events := `{"type":"CUSTOM","name":"n","value":1}`
			if _, err := c.PostEvents(t.Context(), "followed", "r", client.TypeNDJSON, strings.NewReader(events)); err != nil {
				t.Fatal(err)
			}
		}
		post()
		<-time.After(5 * time.Millisecond) // a pause that the replay is to keep: Kafka counts milliseconds
		post()
		start := func(args ...string) (out *growing, stop func() error) {
			return started(t, append([]string{"replay", "--to", "followed", "--tenant", dev.Tenant, "--yes", "--brokers", s.Broker()}, args...)...)
		}
		there := func(n int) {
			t.Helper()
			kafkatest.ConsumeUntil(t, s.Kafka(), "followed", func(got []*kgo.Record) bool { return len(got) == n })
		}
		out, stop := start("--follow", "followed")
		there(2)
		post()
		there(3)
		if err := stop(); err != nil || !strings.HasSuffix(out.String(), "\npublished: 3 records to followed\n") {
			t.Errorf("%v: %s", err, out)
		}
		out, stop = start("--pace", "0.000001", "followed")
		there(4)
		next := position(t, s, "followed", 1)
		err := stop()
		if want := fmt.Sprintf("interrupted: 1 of 3 were published; continue with --range %s:", next); app.ExitCode(err) != app.ExitFailed ||
			!strings.Contains(fmt.Sprint(err), want) || !strings.HasSuffix(out.String(), "\npublished: 1 record to followed\n") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
