package partition

import (
	"fmt"
	"testing"
	"time"
)

// What is written to Kafka, checkpoints, snapshots and progress records with it, as a share of what is
// read: bytes of keys and values, uncompressed. One thread whose runs speak at 50 events a second, 500
// deltas each, alone in its partition; five transactions a second. docs/bench/compactor.md has the figures.
func TestPartition_WritesAShareOfWhatItReads(t *testing.T) {
	for _, c := range []struct {
		name       string
		turns      int
		everything bool // snapshots by the rule of halves alone
		input      bool
		most       float64
	}{
		{"1 turn", 1, false, false, 0.20},
		{"50 turns", 50, false, false, 0.60},
		{"50 turns with inputs", 50, false, true, 0.60},
		{"50 turns, snapshots by half only", 50, true, false, 0.25},
		{"50 turns with inputs, snapshots by half only", 50, true, true, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, func(cfg *Config) {
				if c.everything {
					cfg.SnapshotBelow = 0
				}
			})
			s.open(false)
			converse(s, c.turns, c.input)
			read, written := 0, 0
			for _, m := range s.Events {
				read += len(m.Key) + len(m.Value)
			}
			for _, m := range append(s.runs, s.other...) {
				written += len(m.Key) + len(m.Value)
			}
			share := float64(written) / float64(read)
			t.Logf("%d of %d bytes: %.3f", written, read, share)
			if share > c.most {
				t.Errorf("%.3f of what was read is written, at most %.2f are allowed", share, c.most)
			}
		})
	}
}

// converse lets a thread of so many runs speak, one after the other.
func converse(s *sim, turns int, input bool) {
	const deltas, tick = 500, 200 * time.Millisecond
	said := 0
	say := func(run, value string) {
		s.Send("thread-00000001", run, value)
		if said++; said%10 == 0 {
			s.Now = s.Now.Add(tick)
			s.feed(len(s.Events))
			s.commit(true)
		}
	}
	history := ""
	for turn := range turns {
		run := fmt.Sprintf("run-%08d", turn)
		id := fmt.Sprintf("6f1e2d3c-7c1e-4b5a-9d3f-%012x", turn)
		if input {
			history += userMessage(fmt.Sprintf("user-%04d", turn), "What is the weather like in the town that I asked for?")
			s.Input("thread-00000001", run, fmt.Sprintf(`{"threadId":"thread-00000001","runId":%q,"state":{},"messages":[%s],"tools":[],"context":[],"forwardedProps":{}}`, run, history))
		}
		say(run, fmt.Sprintf(`{"type":"RUN_STARTED","timestamp":1767225600000,"threadId":"thread-00000001","runId":%q}`, run))
		say(run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","timestamp":1767225600000,"messageId":%q,"role":"assistant"}`, id))
		answer := ""
		for n := range deltas {
			word := fmt.Sprintf(" %.*s", 2+n%8, "elephants")
			answer += word
			say(run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1767225600000,"messageId":%q,"delta":%q}`, id, word))
		}
		say(run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","timestamp":1767225600000,"messageId":%q}`, id))
		say(run, fmt.Sprintf(`{"type":"RUN_FINISHED","timestamp":1767225600000,"threadId":"thread-00000001","runId":%q}`, run))
		if input {
			history += "," + assistantMessage(id, answer) + ","
		}
	}
	s.feed(len(s.Events))
	s.commit(true)
}
