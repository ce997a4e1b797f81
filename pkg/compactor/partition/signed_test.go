package partition

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

func ingestKeys(tb testing.TB) *kafka.IngestKeys {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		tb.Fatal(err)
	}
	keys, err := kafka.OpenIngestKeys(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// wrongMAC is a signature that somebody has made up.
var wrongMAC = kgo.RecordHeader{Key: record.HeaderMAC, Value: []byte("0123456789abcdefABCDEF")}

// From the moment at which a partition is opened with keys, records without ingest's signature are dead letters and change nothing; earlier
// ones count. So it is wherever the process dies and is started again, although the new one reads events from before that moment again.
func TestPartition_RefusesWhatIngestHasNotSigned(t *testing.T) {
	keys := ingestKeys(t)
	var want []string
	for name, after := range map[string]func(*sim){
		"at once":             func(*sim) {},
		"in many commits":     func(s *sim) { s.commit(true) },
		"in many processes":   func(s *sim) { s.commit(true); s.open(false) },
		"without its folder":  func(s *sim) { s.commit(true); s.open(true) },
		"that hear no answer": func(s *sim) { s.commit(false); s.open(true) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			s.open(false)
			s.Send("t", "r0", started("r0")) // before the moment
			s.Send("t", "r0", text("m", "a"))
			s.feed(2)
			s.commit(true)
			s.cfg.IngestKeys = keys
			s.open(false)

			sign := func(m *kgo.Record) { keys.Sign(m) }
			sign(s.Send("t", "r0", text("m", "b")))
			copied := *s.Events[2]
			s.Send("t", "r0", text("m", "forged"))           // 3
			s.Send("t", "r0", text("m", "forged"), wrongMAC) // 4
			copied.Value = []byte(text("m", "forged"))
			s.Append(new(copied))                          // 5
			s.Send("t", "", text("m", "forged"))           // 6
			sign(s.Send("t", "r1", started("r1")))         // 7
			s.Erase("t")                                   // 8
			s.Send("t", "r1", finished("r1"))              // 9
			s.SendKind(record.KindCancel, "t", "r1", "{}") // 10
			s.SendKind(record.KindThread, "t", "", `{"title":"forged"}`)
			s.Send("t", "evil", started("evil")) // 12
			s.Input("t", "evil2", `{"threadId":"t","runId":"evil2","messages":[],"tools":[],"context":[]}`)
			sign(s.Send("t", "r1", text("m1", "c")))
			sign(s.Send("t", "r1", finished("r1")))
			s.Send("t", "r1", `{"type":"RUN_ERROR","message":"forged"}`) // 16
			sign(s.Send("t", "r0", finished("r0")))
			for n := s.read; n <= len(s.Events); n++ {
				s.feed(n - s.read) // a new process reads some again
				after(s)
			}
			s.all()

			letters := []string{}
			for _, at := range []int{3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 16} {
				letters = append(letters, fmt.Sprintf("0:%d not-from-ingest", at))
			}
			equal(t, "dead letters", s.letters(), letters)
			equal(t, "runs", slices.Sorted(maps.Keys(s.latest())), []string{"r0", "r1"})
			got := []string{}
			for _, id := range []string{"r0", "r1"} {
				messages, _ := s.history(id)
				got = append(got, fmt.Sprint(s.run(id).Status, s.run(id).Raw.Ranges, s.run(id).Raw.SHA256, messages))
			}
			if strings.Contains(fmt.Sprint(got), "forged") {
				t.Errorf("the runs are %v", got)
			}
			if want == nil {
				want = got
			}
			equal(t, "runs", got, want)
			for _, by := range []*kafka.IngestKeys{nil, keys} {
				for _, r := range s.verified(by) {
					// r0 began unsigned, so only who has the keys knows of the last forgeries before its first signed event; here there are none.
					if r.Verdict != verify.Proved {
						t.Errorf("with keys %v: %+v", by != nil, r)
					}
				}
			}
		})
	}
}

// verified verifies all runs of thread t with the keys of a reader.
func (s *sim) verified(keys *kafka.IngestKeys) []verify.Report {
	s.tb.Helper()
	records := slices.Collect(maps.Values(s.latest()))
	slices.SortFunc(records, func(a, b *record.Run) int { return int(a.Raw.First - b.Raw.First) })
	v, err := verify.NewThread(records, nil, [2]int64{0, int64(len(s.Events))}, verify.NewRecords(records))
	s.check(err)
	for _, m := range s.Events {
		e, ok, err := kafka.RunEvent(m, v.Headers(), keys)
		s.check(err)
		if ok {
			s.check(v.Take(e))
		}
	}
	reports, err := v.Reports()
	s.check(err)
	return reports
}

// A run with so many pieces that its record joins some: without the keys, forged signatures inside of them leave it unproved, and what has
// no signature is still known.
func TestPartition_VerifiesRunsBetweenForgedEvents(t *testing.T) {
	keys := ingestKeys(t)
	for name, c := range map[string]struct {
		forged  []kgo.RecordHeader
		without verify.Verdict
	}{
		"without a signature": {nil, verify.Proved},
		"with a made up one":  {[]kgo.RecordHeader{wrongMAC}, verify.Unproved},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, func(cfg *Config) { cfg.IngestKeys = keys })
			keys.Sign(s.Send("t", "r", started("r")))
			for range 2 * record.MaxRanges {
				s.Send("t", "r", text("m", "forged"), c.forged...)
				keys.Sign(s.Send("t", "r", text("m", "x")))
			}
			keys.Sign(s.Send("t", "r", finished("r")))
			s.all()
			equal(t, "dead letters", len(s.letters()), 2*record.MaxRanges)
			equal(t, "verdict with keys", s.verified(keys)[0].Verdict, verify.Proved)
			equal(t, "verdict without", s.verified(nil)[0].Verdict, c.without)
		})
	}
	// What ingest has signed and the record lacks is a difference to who has the keys.
	s := newSim(t, func(cfg *Config) { cfg.IngestKeys = keys })
	keys.Sign(s.Send("t", "r", started("r")))
	s.Send("t", "r", text("m", "x"))
	keys.Sign(s.Send("t", "r", finished("r")))
	s.all()
	keys.Sign(s.Events[1])
	equal(t, "verdict", s.verified(keys)[0].Verdict, verify.Differs)
}
