package partition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
)

// An input counts for the run that begins next, even if its bytes are those of an earlier run's input. Only with the same start too it
// repeats that run, of a producer that numbers its events.
func TestAgain_AnInputCountsForTheRunThatBeginsNext(t *testing.T) {
	run := func(s *sim, at int, numbered bool) {
		s.Input("t", "r", `{"threadId":"t","runId":"r","messages":[`+userMessage("u1", "hi")+`],"tools":[],"context":[]}`)
		for i, value := range []string{
			fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":17000000000%02d}`, at),
			text(fmt.Sprint("a", at), "answer"), finished("r"),
		} {
			var headers []kgo.RecordHeader
			if numbered {
				headers = append(headers, partitiontest.Seq(i))
			}
			s.Send("t", "r", value, headers...)
		}
	}
	for name, c := range map[string]struct {
		send func(*sim)
		want string
	}{
		"without numbers":                {func(s *sim) { run(s, 1, false); run(s, 2, false) }, "r: u1 a1 none, r~2: u1 a2 none"},
		"another run":                    {func(s *sim) { run(s, 1, true); run(s, 2, true) }, "r: u1 a1 none, r~2: u1 a2 none"},
		"the same run":                   {func(s *sim) { run(s, 1, true); run(s, 1, true) }, "r: u1 a1 none"},
		"the same run, twice":            {func(s *sim) { run(s, 1, true); run(s, 1, true); run(s, 1, true) }, "r: u1 a1 none"},
		"the same run, and then another": {func(s *sim) { run(s, 1, true); run(s, 1, true); run(s, 2, true) }, "r: u1 a1 none, r~2: u1 a2 none"},
		"another run, and that again":    {func(s *sim) { run(s, 1, true); run(s, 2, true); run(s, 2, true) }, "r: u1 a1 none, r~2: u1 a2 none"},
		"the first of two again begins a third": {func(s *sim) { run(s, 1, true); run(s, 2, true); run(s, 1, true) },
			"r: u1 a1 none, r~2: u1 a2 none, r~3: u1 a1 none"},
		"from its second event on": {func(s *sim) {
			run(s, 1, true)
			s.Input("t", "r", string(s.Events[0].Value))
			s.Send("t", "r", text("a1", "answer"), partitiontest.Seq(1))
			s.Send("t", "r", finished("r"), partitiontest.Seq(2))
		}, "r: u1 a1 none"},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 3 {
				s := newSim(t, nil)
				c.send(s)
				s.open(false)
				for at := range s.Events {
					if round == 0 {
						break
					}
					s.feed(at + 1 - s.read)
					s.commit(true)
					if round == 2 {
						s.open(at%2 == 0)
					}
				}
				s.all()
				var got []string
				for _, id := range slices.Sorted(maps.Keys(s.latest())) {
					id = id[strings.LastIndexByte(id, '/')+1:]
					got = append(got, fmt.Sprintf("%s: %s %s", id, s.ids(id), s.run(id).ParentBy))
				}
				equal(t, fmt.Sprint("runs of round ", round), strings.Join(got, ", "), c.want)
				equal(t, "dead letters", s.letters(), []string{})
				equal(t, "committed", s.committed.Committed, int64(len(s.Events)))
			}
		})
	}
}

// An input of which nothing comes has a record in the end.
func TestAgain_AnInputAloneIsKept(t *testing.T) {
	s := newSim(t, nil)
	s.Input("t", "r", `{"messages":[]}`)
	s.Send("t", "r", started("r"), partitiontest.Seq(0))
	s.Send("t", "r", finished("r"), partitiontest.Seq(1))
	s.Input("t", "r", `{"messages":[]}`)
	s.all()
	equal(t, "runs at first", len(s.latest()), 1)
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	equal(t, "runs", len(s.latest()), 2)
	equal(t, "committed", s.committed.Committed, int64(4))
}
