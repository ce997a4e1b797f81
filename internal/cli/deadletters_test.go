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
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// produceEvent writes an event of the thread t to Kafka, past ingest.
func produceEvent(t *testing.T, s *dev.Server, value string) {
	t.Helper()
	key, err := record.ThreadKey(dev.Tenant, "t")
	if err != nil {
		t.Fatal(err)
	}
	adm := kafkatest.Admin(t, s.Kafka())
	count, err := kafka.PartitionCount(t.Context(), adm, s.Kafka().Topics())
	if err != nil {
		t.Fatal(err)
	}
	kafkatest.Produce(t, s.Kafka(), &kgo.Record{Topic: s.Kafka().Topics().Events, Key: []byte(key),
		Partition: record.Partition([]byte(key), count), Value: []byte(value)})
}

// An agent that writes to Kafka itself and does not say the run: its event comes before the run does,
// becomes a dead letter, and is folded once it is tried again while the run is open. One that comes
// behind the run's end is never tried.
func TestDeadLetters_ListAndRetryThroughTheWholePipeline(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		produce := func(value string) {
			t.Helper()
			produceEvent(t, s, value)
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		dead := func(n int) {
			t.Helper()
			kafkatest.ConsumeUntil(t, s.Kafka(), s.Kafka().Topics().DeadLetters, func(got []*kgo.Record) bool { return len(got) == n })
		}
		produce(eventText)
		dead(1)
		produce(eventStart)

		list := func(args ...string) []deadletter.Record {
			t.Helper()
			stdout, stderr, code := skein(t, "", append([]string{"dead-letters", "list", "--json"}, args...)...)
			if code != app.ExitDone {
				t.Fatalf("%v: exit %d, %s", args, code, stderr)
			}
			var out []deadletter.Record
			for line := range strings.Lines(stdout) {
				var l deadletter.Record
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				out = append(out, l)
			}
			return out
		}
		overHTTP, direct := list("--url", s.URL()), list("--brokers", s.Broker(), "--tenant", dev.Tenant)
		if len(overHTTP) != 1 || len(direct) != 1 || overHTTP[0].Reason != deadletter.NoRun || overHTTP[0].ID != direct[0].ID ||
			overHTTP[0].ThreadID != "t" || overHTTP[0].Chance != deadletter.ChanceNow {
			t.Fatalf("over HTTP %+v, from Kafka %+v", overHTTP, direct)
		}
		stdout, _, _ := skein(t, "", "dead-letters", "list", "--brokers", s.Broker(), "--any-tenant")
		if row := strings.Split(stdout, "\t"); len(row) != 9 || row[3] != dev.Tenant || row[4] != "t" {
			t.Errorf("of any tenant %q", stdout)
		}
		if got := list("--brokers", s.Broker(), "--tenant", "another"); len(got) != 0 {
			t.Errorf("another tenant sees %+v", got)
		}
		if got := list("--url", s.URL(), "--reason", deadletter.Malformed); len(got) != 0 {
			t.Errorf("malformed are %+v", got)
		}
		retry := func(args ...string) (string, int) {
			t.Helper()
			stdout, stderr, code := skein(t, "", append([]string{"dead-letters", "retry", "--brokers", s.Broker(), "--tenant", dev.Tenant},
				args...)...)
			return stdout + stderr, code
		}
		if text, code := retry("--all"); code != app.ExitDone || !strings.Contains(text, ": published (") {
			t.Errorf("exit %d, %s", code, text)
		}
		if text, code := retry(overHTTP[0].ID.String()); code != app.ExitDiffers || !strings.Contains(text, "published again before") {
			t.Errorf("exit %d, %s", code, text)
		}
		produce(eventEnd)
		produce(eventText + " ") // no run is open
		dead(2)
		if text, code := retry("--reason", deadletter.AfterTerminal); code != app.ExitNotFound {
			t.Errorf("exit %d, %s", code, text)
		}
		stdout, stderr, code := skein(t, "", "replay", "t", "r", "--url", s.URL())
		if want := eventStart + "\n" + eventText + "\n" + eventEnd + "\n"; code != 0 || stdout != want {
			t.Errorf("exit %d, the run is %s%s, want %s", code, stdout, stderr, want)
		}
		first, second := list("--url", s.URL())[0], list("--url", s.URL())[1]
		for form, want := range map[string]string{
			"table": fmt.Sprintf("%s\tno-run\tnow\tt\t-\t%s\t%s\t", first.ID, first.At.UTC().Format(time.RFC3339), first.Position),
			"wide":  fmt.Sprintf("%s\tno-run\tnow\tt\t-\t%s\t%s\t", first.ID, first.At.UTC().Format(time.RFC3339), first.Position),
			"name":  fmt.Sprintf("%s\n%s\n", first.ID, second.ID),
			"json":  fmt.Sprintf(`[{"id":"%s",`, first.ID),
		} {
			stdout, stderr, code := skein(t, "", "dead-letters", "list", "-o", form, "--url", s.URL())
			if lines := strings.Count(stdout, "\n"); code != 0 || !strings.HasPrefix(stdout, want) || lines != map[bool]int{true: 1, false: 2}[form == "json"] {
				t.Errorf("-o %s: exit %d, %s%s, want %s", form, code, stdout, stderr, want)
			}
		}
		if stdout, _, code := skein(t, "", "dead-letters", "list", "-o", "json", "--reason", deadletter.Malformed, "--url", s.URL()); code != 0 ||
			stdout != "[]\n" {
			t.Errorf("exit %d, no dead letters as JSON are %s", code, stdout)
		}
		if _, stderr, code := skein(t, "", "erase", "t", "--yes", "--url", s.URL()); code != app.ExitDone {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		if got := list("--url", s.URL()); len(got) != 0 {
			t.Errorf("of an erased thread there are %+v", got)
		}
	})
}
