package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// Records as older rules might have made them: of a run and of the one that goes on from it.
func TestRefold_FollowsAChangeAlongTheThread(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		for _, run := range []string{"first", "second"} {
			events := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%[1]q}
{"type":"STATE_DELTA","delta":[{"op":"add","path":"/%[1]s","value":1}]}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%[1]s","role":"assistant","delta":"of the %[1]s"}
{"type":"RUN_FINISHED","threadId":"t","runId":%[1]q}`, run)
			if _, err := c.PostEvents(t.Context(), "t", run, client.TypeNDJSON, strings.NewReader(events)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := asOlderRulesHadIt(t, s) // behind the first run's events
		refold := func(want int, args ...string) string {
			t.Helper()
			stdout, stderr, code := skein(t, "", append([]string{"refold", "--brokers", s.Broker()}, args...)...)
			if code != want {
				t.Fatalf("refold %v: exit %d, want %d; stdout %q, stderr %q", args, code, want, stdout, stderr)
			}
			return stdout
		}
		const first, second = "tenant dev, thread t, run first, folded by version 0: changes in state/first\n", "tenant dev, thread t, run second, folded by version 0: changes in state/first\n"
		sum := func(runs, same, changes, gone int) string {
			return fmt.Sprintf("%d runs by version 3 of the rules: %d as they are, %d would change; left: %d whose raw events are gone, 0 open\n", runs, same, changes, gone)
		}
		if got, want := refold(app.ExitDiffers, "t", "--tenant", dev.Tenant), first+second+sum(2, 0, 2, 0); got != want {
			t.Errorf("it says\n%swant\n%s", got, want)
		}
		if got, want := refold(app.ExitDiffers, "--range", next.String()), second+sum(1, 0, 1, 0); got != want {
			t.Errorf("of the second run's events it says\n%swant\n%s", got, want)
		}
		var one verify.Result
		if line, _, _ := strings.Cut(refold(app.ExitDiffers, "--all", "--json"), "\n"); json.Unmarshal([]byte(line), &one) != nil ||
			one.RunID != "first" || one.Outcome != verify.Changes || len(one.Differences) != 1 || one.Differences[0].At != "/first" {
			t.Errorf("as JSON it says %s", line)
		}
		refold(app.ExitNotFound, "--all", "--tenant", "another")

		// Without the first run's events its record stays, and the second one goes on from what that says.
		adm := kafkatest.Admin(t, s.Kafka())
		before := kadm.Offsets{}
		before.Add(kadm.Offset{Topic: s.Kafka().Topics().Events, Partition: next.Partition, At: next.Offset})
		if _, err := adm.DeleteRecords(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if got, want := refold(app.ExitDone, "--all"), sum(2, 1, 0, 1); got != want {
			t.Errorf("where raw events are gone it says\n%swant\n%s", got, want)
		}
	})
}

// asOlderRulesHadIt writes the sealed records as older rules might have made them, by which the first run's state came
// out otherwise, and returns where that run's events end.
func asOlderRulesHadIt(t *testing.T, s *dev.Server) (next record.Position) {
	t.Helper()
	runs := s.Kafka().Topics().Runs
	for _, m := range kafkatest.Consume(t, s.Kafka(), runs) {
		if h, err := record.ParseHeaders(m.Headers); err != nil || h.Kind != record.KindRun {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil || r.Open != nil {
			continue
		}
		r.FoldVersion, r.State = 0, json.RawMessage(strings.Replace(string(r.State), `"first":1`, `"first":0`, 1))
		if r.RunID == "first" {
			next = record.Position{Partition: r.Raw.Partition, Offset: r.Raw.Next}
		}
		old, err := record.EncodeRun(r)
		if err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, s.Kafka(), &kgo.Record{Topic: runs, Partition: m.Partition, Key: m.Key, Value: old, Headers: m.Headers})
	}
	return next
}
