package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// impatient is a stage that waits for Kafka for seconds only; a busy machine answers within them.
func impatient(t *testing.T, c *kafkatest.Cluster) *stage {
	cfg := testConfig(c.Config)
	cfg.AckTimeout = 2 * time.Second
	return open(t, cfg)
}

// restart starts a stopped cluster again, at its address and with its data.
func restart(t *testing.T, c *kafkatest.Cluster, dir string) {
	t.Helper()
	_, port, err := net.SplitHostPort(c.Config.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	kafkatest.StartCluster(t, 1, kafkatest.WithDataDir(dir), kafkatest.WithPort(n))
}

// silence makes the cluster take produce requests and never answer them.
func silence(c *kafkatest.Cluster) {
	c.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		return nil, nil, true
	})
}

func wantUnavailable(t *testing.T, a answer, accepted int64) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.Reason != "unavailable" || a.Accepted != accepted {
		t.Errorf("answer is %d %s, want 503 with %d accepted", a.status, a.body, accepted)
	}
	if place := regexp.MustCompile(`[:.]\d|\w/\w`).FindString(a.Detail); place != "" {
		t.Errorf("answer %q names a file or an address: %s", a.Detail, place)
	}
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
}

func TestWeather_KafkaAwayIsA503(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	d := impatient(t, c)
	c.Stop()
	begin := time.Now()
	wantUnavailable(t, d.post(typeNDJSON, ev1+"\n"+ev2), 0)
	wantUnavailable(t, d.do(http.MethodPut, d.path("input"), strings.NewReader(input1)), 0)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("two answers took %v", took)
	}
	wantUnavailable(t, d.do(http.MethodDelete, "/v1/threads/t1", nil), 0)
	a, _ := d.cancel("r1", "")
	wantUnavailable(t, a, 0)
	many := strings.TrimSuffix(strings.Repeat(ev1+"\n", 50), "\n") // some of them take memory ahead
	wantUnavailable(t, d.post(typeNDJSON, many), 0)
	d.eventually("nothing is held for what has failed", func() bool { return d.svc.memory.Held() == 0 })
}

// The operator reads in the log and in readiness why Kafka lets nobody in, and callers do not.
func TestWeather_TheLoginIsNotForCallers(t *testing.T) {
	t.Parallel()
	login := kafkatest.WithFake(kfake.EnableSASL(), kfake.Superuser("PLAIN", "skein", "sesame"))
	c := kafkatest.StartCluster(t, 1, kafkatest.WithoutTopics(), login)
	password := filepath.Join(t.TempDir(), "password")
	var log logtest.Log
	c.Config.Security = kafka.Security{SASL: "PLAIN", User: "skein", PasswordFile: password}
	c.Config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := start(t, testConfig(c.Config))
	d.eventually("readiness names the file", func() bool { return strings.Contains(d.svc.Ready().Error(), password) })
	wantUnavailable(t, d.post(typeNDJSON, ev1), 0)
	if err := os.WriteFile(password, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	d.eventually("the stage is ready", func() bool { return d.svc.Ready() == nil })
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, d.post(typeNDJSON, ev1), 0)
	if a, _ := d.cancel("r1", ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
	if !strings.Contains(log.String(), "reading the password of Kafka: open "+password) {
		t.Errorf("the log says %s", log.String())
	}
}

func TestWeather_KafkaBackIsAYes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := kafkatest.StartCluster(t, 1, kafkatest.WithDataDir(dir))
	d := impatient(t, c)
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	c.Stop()
	wantUnavailable(t, d.post(typeNDJSON, ev2), 0)
	restart(t, c, dir)
	d.eventually("ingest says yes again", func() bool { return d.post(typeNDJSON, ev3).status == http.StatusOK })
	got := d.written()
	if got[0] != ev1 || got[len(got)-1] != ev3 {
		t.Errorf("written is %q", got)
	}
}

// What was acknowledged before Kafka went away is said, and nothing more.
func TestWeather_APartIsSaidToBeAccepted(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	d := impatient(t, c)
	in, out := io.Pipe()
	got := make(chan answer, 1)
	go func() { got <- d.do(http.MethodPost, d.path("events"), in) }()
	if _, err := io.WriteString(out, ev1+"\n"+ev2+"\n"); err != nil {
		t.Fatal(err)
	}
	// The records are there while the body is still open.
	kafkatest.ConsumeUntil(t, d.cfg, d.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 2 })
	silence(c)
	if _, err := io.WriteString(out, ev3+"\n"); err != nil {
		t.Fatal(err)
	}
	// Nobody closes the body: the agent is silent, and is told all the same.
	a := <-got
	wantUnavailable(t, a, 2)
	if a.FirstOffset != 0 || a.LastOffset != 1 {
		t.Errorf("offsets are %d to %d, want 0 to 1", a.FirstOffset, a.LastOffset)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}

// What Kafka refuses for good in the middle ends the request there, with no gap.
func TestWeather_NothingIsWrittenBehindAGap(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	d := impatient(t, c)
	var seen atomic.Int64
	var last kmsg.Request // it is asked more than once for one
	c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.PolicyViolation, Count: -1, When: func(r kmsg.Request) bool {
		if r != last {
			last = r
			seen.Add(1)
		}
		return seen.Load() == 3
	}})
	in, out := io.Pipe()
	got := make(chan answer, 1)
	go func() {
		defer close(got) // do may end the goroutine: its caller may not see an answer in the middle of its body
		got <- d.do(http.MethodPost, d.path("events"), in)
	}()
	for i := range 200 {
		if _, err := fmt.Fprintf(out, `{"type":"X","n":%d}`+"\n", i); err != nil {
			break // ingest has hung up
		}
		if i < 2 { // a request each, so that the third one comes in the middle
			kafkatest.ConsumeUntil(t, d.cfg, d.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == i+1 })
		}
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	a := <-got
	values := d.written()
	for i, v := range values {
		if v != fmt.Sprintf(`{"type":"X","n":%d}`, i) {
			t.Fatalf("value %d is %s: there is a gap", i, v)
		}
	}
	if seen.Load() < 3 || len(values) != 2 {
		t.Errorf("%d requests, and %d values are written, want 2 and a third request that is refused", seen.Load(), len(values))
	}
	if a.status != http.StatusServiceUnavailable || a.Accepted != int64(len(values)) {
		t.Errorf("answer is %d %s, written are %d", a.status, a.body, len(values))
	}
}

func TestWeather_ATopicWithALowerLimitIsA413(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	d := impatient(t, c)
	c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1})
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusRequestEntityTooLarge || a.Accepted != 0 {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
}

// A caller that hangs up in the middle takes nothing of others with it.
func TestWeather_ACallerThatHangsUpHurtsNobody(t *testing.T) {
	d := newStage(t)
	for i := range 20 {
		conn := d.dial()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s\n%s\n", d.in(t, "gone").path("events"),
			ev1, ev2[:10]); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if a := d.post(typeNDJSON, fmt.Sprintf(`{"type":"X","n":%d}`, i)); a.status != http.StatusOK || a.Accepted != 1 {
			t.Fatalf("answer is %d %s", a.status, a.body)
		}
	}
	for _, v := range d.in(t, "gone").written() {
		if v != ev1 {
			t.Errorf("%q was written of a body that was cut", v)
		}
	}
}

func TestWeather_ABodyThatIsCutIsA400(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct{ head, body string }{
		"in an event, by length": {"Content-Length: 1000", ev1 + "\n" + ev2[:10]},
		// What is there looks whole, but the caller has not finished it.
		"after a whole event": {"Content-Length: 1000", ev1 + "\n" + ev3},
		"by chunks":           {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\n\r\n%x\r\n%s", len(ev1)+1, ev1, 50, ev2[:10])},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			conn := d.dial()
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", d.path("events"), tc.head, tc.body); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			a := d.answerOn(conn)
			if a.status != http.StatusBadRequest || a.Reason != "cut" || a.Line != 2 || a.Accepted != 1 {
				t.Errorf("answer is %d %s", a.status, a.body)
			}
			if got := d.written(); len(got) != 1 || got[0] != ev1 {
				t.Errorf("written is %q", got)
			}
		})
	}
}

// The answer to a bad line comes while the caller still holds the body open.
func TestEvents_ABadLineIsAnsweredAtOnce(t *testing.T) {
	d := newStage(t)
	for _, line := range []string{"nonsense\n", strings.Repeat("x", 2*readBuffer)} {
		in, out := io.Pipe()
		got := make(chan answer, 1)
		go func() { got <- d.do(http.MethodPost, d.path("events"), in) }()
		// The answer may come before all of the line was taken: nobody reads the rest then.
		if _, err := io.WriteString(out, ev1+"\n"+line); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		if a := <-got; a.Line != 2 || a.Accepted != 1 {
			t.Errorf("answer is %d %s", a.status, a.body)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}
}

// While Kafka takes nothing, ingest takes no more than its windows: a caller waits.
func TestEvents_ACallerIsSlowedDownToKafkasPace(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	cfg := testConfig(c.Config)
	cfg.AckTimeout = 2 * time.Second
	d := open(t, cfg)
	silence(c)
	var taken atomic.Int64
	body := &counting{r: endless{line: []byte(`{"type":"X","pad":"` + strings.Repeat("p", 1000) + "\"}\n")}, n: &taken}
	a := d.do(http.MethodPost, d.path("events"), body)
	wantUnavailable(t, a, 0)
	// Windows, the reader's buffer, and what the kernel holds for a connection on loopback.
	if n := taken.Load(); n > 16<<20 {
		t.Errorf("ingest took %d bytes that Kafka did not", n)
	}
}

type endless struct{ line []byte }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e.line) <= len(p) {
		n += copy(p[n:], e.line)
	}
	return n, nil
}

type counting struct {
	r io.Reader
	n *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func TestIngest_IsNotReadyUntilTheTopicsAreThere(t *testing.T) {
	c := kafkatest.StartCluster(t, 1, kafkatest.WithoutTopics())
	cfg := testConfig(c.Config)
	cfg.PartitionCheck = 20 * time.Millisecond
	d := start(t, cfg)
	wantUnavailable(t, d.post(typeNDJSON, ev1), 0)
	for _, topic := range c.Config.Topics().All() {
		if d.svc.Ready() == nil {
			t.Fatal("the stage is ready before all topics are there")
		}
		if err := c.Fake.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	d.eventually("it is ready", func() bool { return d.svc.Ready() == nil })
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
}

func TestIngest_IsNotReadyWherePartitionCountsDifferOrChange(t *testing.T) {
	c := kafkatest.StartCluster(t, 2)
	reg := prometheus.NewRegistry()
	cfg := testConfig(c.Config)
	cfg.Kafka.Registerer = reg
	cfg.PartitionCheck = 20 * time.Millisecond
	d := open(t, cfg)
	recreate := func(topics []string, n int32) {
		t.Helper()
		for _, topic := range topics {
			if err := c.Fake.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			if err := c.Fake.CreateTopic(topic, n, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	derived := c.Config.Topics().Snapshots
	recreate([]string{derived}, 3)
	d.eventually("it is not ready", func() bool { return d.svc.Ready() != nil })
	a := d.post(typeNDJSON, ev1)
	wantUnavailable(t, a, 0)
	if !strings.Contains(a.Detail, "2") || !strings.Contains(a.Detail, "3") || !strings.Contains(a.Detail, derived) {
		t.Errorf("detail is %q, want the counts and the topic", a.Detail)
	}
	recreate([]string{derived}, 2)
	d.eventually("it is ready", func() bool { return d.svc.Ready() == nil })
	recreate(c.Config.Topics().All(), 3) // all of them: equal, but not what it was
	d.eventually("it is not ready", func() bool { return d.svc.Ready() != nil })
	wantUnavailable(t, d.post(typeNDJSON, ev1), 0)
	if got := testutil.ToFloat64(d.svc.metrics.open); got != 0 {
		t.Errorf("skein_ingest_ready is %v, want 0", got)
	}
	recreate(c.Config.Topics().All(), 2) // as it was, but other topics: the producer knows those that are gone
	d.eventually("it is ready", func() bool { return d.svc.Ready() == nil })
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Errorf("to topics that were made again the answer is %d %s", a.status, a.body)
	}
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := testConfig(kafkatest.Start(t, 1))
	cfg.Kafka.Registerer, cfg.TenantMetrics = reg, 1
	d := open(t, cfg)
	d.post(typeNDJSON, ev1+"\n"+ev3)
	d.post(typeNDJSON, ev1+"\nx")
	d.do(http.MethodPut, d.path("input"), strings.NewReader(input1))
	want := fmt.Sprintf(`
# HELP skein_ingest_event_bytes_total Bytes of acknowledged values, before compression, by kind.
# TYPE skein_ingest_event_bytes_total counter
skein_ingest_event_bytes_total{kind="cancel"} 0
skein_ingest_event_bytes_total{kind="claim"} 0
skein_ingest_event_bytes_total{kind="erase"} 0
skein_ingest_event_bytes_total{kind="event"} %d
skein_ingest_event_bytes_total{kind="input"} %d
skein_ingest_event_bytes_total{kind="thread"} 0
# HELP skein_ingest_events_total Records that Kafka has acknowledged, by kind.
# TYPE skein_ingest_events_total counter
skein_ingest_events_total{kind="cancel"} 0
skein_ingest_events_total{kind="claim"} 0
skein_ingest_events_total{kind="erase"} 0
skein_ingest_events_total{kind="event"} 3
skein_ingest_events_total{kind="input"} 1
skein_ingest_events_total{kind="thread"} 0
# HELP skein_ingest_requests_total Requests by call and outcome.
# TYPE skein_ingest_requests_total counter
skein_ingest_requests_total{call="agent",outcome="accepted"} 0
skein_ingest_requests_total{call="agent",outcome="rejected"} 0
skein_ingest_requests_total{call="agent",outcome="unavailable"} 0
skein_ingest_requests_total{call="cancel",outcome="accepted"} 0
skein_ingest_requests_total{call="cancel",outcome="rejected"} 0
skein_ingest_requests_total{call="cancel",outcome="unavailable"} 0
skein_ingest_requests_total{call="erase",outcome="accepted"} 0
skein_ingest_requests_total{call="erase",outcome="rejected"} 0
skein_ingest_requests_total{call="erase",outcome="unavailable"} 0
skein_ingest_requests_total{call="events",outcome="accepted"} 1
skein_ingest_requests_total{call="events",outcome="rejected"} 1
skein_ingest_requests_total{call="events",outcome="unavailable"} 0
skein_ingest_requests_total{call="input",outcome="accepted"} 1
skein_ingest_requests_total{call="input",outcome="rejected"} 0
skein_ingest_requests_total{call="input",outcome="unavailable"} 0
skein_ingest_requests_total{call="patch",outcome="accepted"} 0
skein_ingest_requests_total{call="patch",outcome="rejected"} 0
skein_ingest_requests_total{call="patch",outcome="unavailable"} 0
# HELP skein_ingest_tenant_event_bytes_total Bytes of acknowledged values, before compression, of the largest tenants and of all others.
# TYPE skein_ingest_tenant_event_bytes_total counter
skein_ingest_tenant_event_bytes_total{tenant="dev"} %d
skein_ingest_tenant_event_bytes_total{tenant="other"} 0
# HELP skein_ingest_unacknowledged_bytes Bytes of records that are not acknowledged.
# TYPE skein_ingest_unacknowledged_bytes gauge
skein_ingest_unacknowledged_bytes 0
`, 2*len(ev1)+len(ev3), len(input1), 2*len(ev1)+len(ev3)+len(input1))
	err := testutil.GatherAndCompare(reg, bytes.NewReader([]byte(want)), "skein_ingest_event_bytes_total",
		"skein_ingest_events_total", "skein_ingest_requests_total", "skein_ingest_tenant_event_bytes_total", "skein_ingest_unacknowledged_bytes")
	if err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(d.svc.metrics.rejected.WithLabelValues("not-json")); got != 1 {
		t.Errorf("rejected for not-json is %v, want 1", got)
	}
}
