package partitiontest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
)

var withoutID = regexp.MustCompile(`"id":"[^"]*",`)

// Random writes a random history: threads with interleaved runs, inputs that continue, edit or fork,
// explicit parents, events without run id, repeats, late events, ids used again, silence, garbage; and
// where erasures are wanted, threads that are erased, also while runs are open.
func Random(s *Script, rng *rand.Rand, events int, erasures bool) {
	s.Says = rng
	type open struct {
		thread, id string
		seq        int
		numbered   bool
		left       int
	}
	var runs []*open
	ended := map[string][]string{} // by thread
	conversation := map[string][]string{}
	n := 0
	slow := []string{"t1", "t2", "t3"}[rng.IntN(3)]
	behind := time.Duration(rng.IntN(3)*rng.IntN(60)) * time.Minute // its producer's clock
	from := len(s.Events)
	defer func() {
		for _, m := range s.Events[from:] {
			if strings.HasSuffix(string(m.Key), "/"+slow) {
				m.Timestamp = m.Timestamp.Add(-behind)
			}
		}
	}()
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for len(s.Events) < events {
		s.Now = s.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		if rng.IntN(60) == 0 {
			s.Now = s.Now.Add(2 * time.Hour)
		}
		if erasures && rng.IntN(80) == 0 {
			thread := pick("t1", "t2", "t3")
			s.Erase(thread)
			if rng.IntN(2) == 0 { // the agents of open runs may know nothing of it and go on
				runs = slices.DeleteFunc(runs, func(r *open) bool { return r.thread == thread })
			}
			continue
		}
		if len(runs) < 1+rng.IntN(5) {
			n++
			r := &open{thread: pick("t1", "t2", "t3"), id: fmt.Sprintf("r%d", n), left: 2 + rng.IntN(8), numbered: rng.IntN(3) == 0}
			if old := ended[r.thread]; len(old) > 0 && rng.IntN(12) == 0 {
				r.id, r.numbered = pick(old...), false // used again
			}
			parent := ""
			if old := ended[r.thread]; len(old) > 0 && rng.IntN(4) == 0 {
				parent = fmt.Sprintf(`,"parentRunId":%q`, pick(append(old, "elsewhere", r.id)...))
			}
			input := ""
			if rng.IntN(2) == 0 {
				messages := slices.Clone(conversation[r.thread])
				if len(messages) > 0 && rng.IntN(3) == 0 {
					messages = messages[:rng.IntN(len(messages))]
				}
				switch rng.IntN(8) {
				case 0: // normalised, where it is on RUN_STARTED
					messages = nil
				case 1:
					messages = []string{`"a bare string"`, `{"content":"one without id"}`}
				case 2: // of a client that has no ids
					for i := range messages {
						messages[i] = withoutID.ReplaceAllString(messages[i], "")
					}
				}
				if rng.IntN(8) > 0 {
					messages = append(messages, UserMessage(fmt.Sprintf("u%d", n), "hello"))
				}
				input = fmt.Sprintf(`{"threadId":%q, "runId":%q, "messages":[%s], "state":{"n":%d}, "tools":[], "context":[]%s}`,
					r.thread, r.id, strings.Join(messages, ", "), n, parent)
			}
			if input != "" && rng.IntN(2) == 0 {
				s.Input(r.thread, r.id, input)
				input = ""
				if rng.IntN(3) == 0 {
					s.Send(r.thread, "", Custom("between input and start"))
				}
			}
			if input != "" {
				input = `,"input":` + input
			}
			value := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s%s}`, r.thread, r.id, parent, input)
			if r.numbered {
				s.Send(r.thread, r.id, value, Seq(0))
				r.seq = 1
			} else {
				s.Send(r.thread, pick(r.id, r.id, ""), value)
			}
			runs = append(runs, r)
			continue
		}
		i := rng.IntN(len(runs))
		r := runs[i]
		header := r.id
		if !r.numbered && rng.IntN(4) == 0 {
			header = "" // whoever is the latest
		}
		say := func(value string) {
			if r.numbered {
				s.Send(r.thread, r.id, value, Seq(r.seq))
				if rng.IntN(6) == 0 {
					s.Send(r.thread, r.id, value, Seq(r.seq))
				}
				r.seq++
				switch rng.IntN(10) {
				case 0: // some are not there
					r.seq += 1 + rng.IntN(3)
				case 1: // one of them comes all the same, or one that was
					s.Send(r.thread, r.id, value, Seq(rng.IntN(r.seq)))
				}
				return
			}
			s.Send(r.thread, header, value)
		}
		if r.left--; r.left == 0 {
			runs = slices.Delete(runs, i, i+1)
			ended[r.thread] = append(ended[r.thread], r.id)
			conversation[r.thread] = append(conversation[r.thread], AssistantMessage("m"+r.id, "x")) // twice, of an id that is used again
			switch rng.IntN(6) {
			case 0: // never ends
			case 1:
				say(`{"type":"RUN_ERROR","message":"no"}`)
			default:
				say(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, r.thread, r.id))
			}
			if rng.IntN(5) == 0 {
				s.Send(r.thread, r.id, Text("m"+r.id, "late"))
			}
			continue
		}
		switch rng.IntN(9) {
		case 0:
			say(fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value": %d}]}`, rng.IntN(3), n))
		case 1:
			say(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "s" : %d }}`, rng.IntN(2)))
		case 2:
			say(fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id":"m%s", "role":"assistant", "content":"s" } ]}`, r.id))
		case 3:
			say(pick(Custom("kept"), `{"type":"RAW","event":{}}`, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"NEW"}`))
		case 4:
			say(pick(`{"type":"TEXT_MESSAGE_CONTENT","messageId":7}`, `{"type":`, `[]`))
		case 5:
			say(fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a%s","activityType":"plan","content":{"step": %d}}`, r.id, n))
		case 6:
			s.Input(r.thread, r.id, fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[],"tools":[],"context":[]}`, r.thread, r.id))
		default:
			say(Text("m"+r.id, "x"))
		}
	}
}
