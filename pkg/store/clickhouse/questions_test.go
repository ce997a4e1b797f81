package clickhouse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

const questionsDir = "../../../docs/questions"

// talks makes threads of runs as people make them: they go on, ask again, edit, and leave branches. The last entry of each run counts.
func talks(t testing.TB, seed uint64) (entries []store.Entry, final []*record.Run) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	version := int64(0)
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	for th := range 40 {
		var runs []*record.Run
		var asks, left []string // left: calls without a result
		for i := range 1 + rnd.IntN(12) {
			e := sealedEntry(version)
			version += 10
			e.ThreadID, e.RunID = fmt.Sprintf("thread-%02d", th), fmt.Sprintf("run-%02d", i)
			r := e.Run
			r.Tenant, r.ThreadID, r.RunID = e.Tenant, e.ThreadID, e.RunID
			r.Raw.First = int64(1000*th + 10*i)
			r.Agent, r.Labels = pick("shop", "desk"), map[string]string{"team": pick("red", "blue"), "env": "prod"}
			r.Lineage = record.Lineage{ParentBy: record.ParentNone, BranchID: e.RunID, RootRunID: e.RunID}
			text := fmt.Sprint("question ", i)
			if i > 0 {
				last := len(runs) - 1
				switch rnd.IntN(4) {
				case 0: // the same again
					r.Lineage, text = runs[last].Lineage, asks[last]
					r.BranchID = e.RunID
				case 1: // an edit
					r.Lineage, text = runs[last].Lineage, asks[last]+" please"
					r.BranchID = e.RunID
				case 2: // back to an earlier run
					p := runs[rnd.IntN(len(runs))]
					r.Lineage = record.Lineage{ParentRunID: p.RunID, BranchID: e.RunID, RootRunID: p.RootRunID, Depth: p.Depth + 1}
				default:
					p := runs[last]
					r.Lineage = record.Lineage{ParentRunID: p.RunID, BranchID: p.BranchID, RootRunID: p.RootRunID, Depth: p.Depth + 1}
				}
				// A branch goes on only from its own tip.
				if r.BranchID != e.RunID && slices.ContainsFunc(runs, func(o *record.Run) bool { return o.ParentRunID == r.ParentRunID }) {
					r.BranchID = e.RunID
				}
			}
			r.InputMessages = []agui.Message{{ID: "u" + e.RunID, Role: "user", Raw: json.RawMessage(fmt.Sprintf(`{"id":"u%s","role":"user","content":%q}`, e.RunID, text))}}
			r.StartedAt = time.Date(2026, 9, 1+th%20+rnd.IntN(3), 8, i, rnd.IntN(60), 0, time.UTC)
			end := r.StartedAt.Add(time.Duration(rnd.IntN(60_000)) * time.Millisecond)
			r.EndedAt, r.State = &end, json.RawMessage(`{}`)
			r.Status = record.Status(pick("finished", "finished", "error", "cancelled", "abandoned", "interrupted"))
			switch r.Status {
			case record.StatusError:
				r.Terminal = json.RawMessage(fmt.Sprintf(`{"type":"RUN_ERROR","message":"m","code":%q}`, pick("quota", "timeout")))
			case record.StatusCancelled:
				r.Synthetic = rnd.IntN(2) == 0
			case record.StatusInterrupted:
				r.Interrupts = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"id":"i-%s","reason":"approval"}`, e.RunID))}
			}
			if p := r.ParentRunID; p != "" && rnd.IntN(2) == 0 {
				if at := slices.IndexFunc(runs, func(o *record.Run) bool { return o.RunID == p }); runs[at].Interrupts != nil {
					r.Resumes = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"interruptId":"i-%s","status":"resolved"}`, p))}
					if !r.StartedAt.After(*runs[at].EndedAt) {
						r.StartedAt = runs[at].EndedAt.Add(time.Duration(1+rnd.IntN(9000)) * time.Millisecond)
					}
				}
			}
			ttft := int64(rnd.IntN(3000))
			if rnd.IntN(5) > 0 {
				r.Stats.TimeToFirstToken = &ttft
			}
			in, out := int64(rnd.IntN(1000)), int64(rnd.IntN(1000))
			r.Stats.Usage = map[string]record.TokenUsage{pick("large", "small", "unpriced"): {InputTokens: in, OutputTokens: out, TotalTokens: in + out}}
			r.Stats.EventBytes = map[string]int64{"TEXT_MESSAGE_CHUNK": int64(rnd.IntN(5000))}
			if rnd.IntN(3) == 0 {
				r.Stats.Anomalies = map[string]int64{pick("open-at-end", "schema"): int64(1 + rnd.IntN(3))}
			}
			timed := rnd.IntN(5) > 0 // else its record is at the limit of its size
			if timed {
				r.Stats.ToolCallTimes = map[string][]int64{}
			}
			if len(left) > 0 && rnd.IntN(3) == 0 { // a call that was approved: the run that goes on makes the result
				r.Messages = append(r.Messages, agui.Message{ID: "t" + left[0], Role: agui.RoleTool, Raw: json.RawMessage(fmt.Sprintf(
					`{"id":"t%s","role":"tool","toolCallId":"%s","content":"x","error":"declined"}`, left[0], left[0]))})
				left = left[1:]
			}
			for c := range rnd.IntN(3) {
				id := fmt.Sprintf("%s-c%d", e.RunID, c)
				r.Messages = append(r.Messages, agui.Message{ID: "a" + id, Role: agui.RoleAssistant, Raw: json.RawMessage(fmt.Sprintf(
					`{"id":"a%s","role":"assistant","toolCalls":[{"id":"%s","type":"function","function":{"name":%q,"arguments":"{}"}}]}`, id, id, pick("search", "fetch")))})
				k := rnd.IntN(4)
				if k == 0 {
					left = append(left, id)
				} else {
					result := fmt.Sprintf(`{"id":"t%s","role":"tool","toolCallId":"%s","content":"x"}`, id, id)
					if k == 1 {
						result = strings.TrimSuffix(result, "}") + `,"error":"timeout"}`
					}
					r.Messages = append(r.Messages, agui.Message{ID: "t" + id, Role: agui.RoleTool, Raw: json.RawMessage(result)})
				}
				if timed {
					began := int64(rnd.IntN(1000))
					r.Stats.ToolCallTimes[id] = []int64{began, began + int64(rnd.IntN(9000))}[:min(2, 1+k)]
				}
			}
			open := *r
			open.Status, open.EndedAt, open.Terminal = record.StatusRunning, nil, nil
			before := e
			before.Version, before.Run = e.Version-5+10, &open
			e.Version += 9
			entries = append(entries, before, e)
			runs, asks, final = append(runs, r), append(asks, text), append(final, r)
		}
	}
	return entries, final
}

// counted sums up by key, as text.
type counted map[string][]float64

func (c counted) add(key string, values ...float64) {
	have := c[key]
	if have == nil {
		have = make([]float64, len(values))
	}
	for i, v := range values {
		have[i] += v
	}
	c[key] = have
}

func (c counted) lines() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %.0f", k, c[k]), " []"))
	}
	return out
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// byStart are the runs of each thread, by start.
func byStart(runs []*record.Run) map[string][]*record.Run {
	of := map[string][]*record.Run{}
	for _, r := range runs {
		of[r.ThreadID] = append(of[r.ThreadID], r)
	}
	for _, list := range of {
		slices.SortFunc(list, func(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) })
	}
	return of
}

// within is the range that a question asks about.
type within struct{ from, to time.Time }

func (w within) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// of are the runs that began in it.
func (w within) of(runs []*record.Run) (in []*record.Run) {
	for _, r := range runs {
		if w.has(r.StartedAt) {
			in = append(in, r)
		}
	}
	return in
}

// quantileOf is the value of a sorted list at the place of that share.
func quantileOf(list []int64, share float64) int64 {
	return list[min(len(list)-1, int(share*float64(len(list))))]
}

// modelOf is the model of a run, where it names exactly one.
func modelOf(r *record.Run) string {
	if len(r.Stats.Usage) == 1 {
		for m := range r.Stats.Usage {
			return m
		}
	}
	return ""
}

// prices are those of the test, of a million tokens.
var prices = map[string]struct{ input, output float64 }{"large": {3, 8}, "small": {1, 2}}

// costOf is what the run's tokens cost, in millionths; it has none where a model has no price.
func costOf(r *record.Run) (cost float64, has bool) {
	for model, u := range r.Stats.Usage {
		price, known := prices[model]
		if !known {
			return 0, false
		}
		cost += float64(u.InputTokens)*price.input + float64(u.OutputTokens)*price.output
	}
	return cost, len(r.Stats.Usage) > 0
}

// askedOf is what a run asks: the roles, contents and errors of the messages of its input behind the last one of an agent.
func askedOf(r *record.Run) string {
	asked := ""
	for _, m := range r.InputMessages {
		switch m.Role {
		case "assistant", "reasoning", "activity":
			asked = ""
		default:
			asked += fmt.Sprintf("%s %s %s\n", m.Role, m.Get("content"), m.Get("error"))
		}
	}
	return asked
}

// askedAgain counts runs that ask something, regenerations and edits by group and week.
func askedAgain(runs []*record.Run, in within, groups func(*record.Run) []string) []string {
	c := counted{}
	for _, list := range byStart(runs) {
		for i, r := range list {
			if askedOf(r) == "" || !in.has(r.StartedAt) {
				continue
			}
			again, before := false, false
			for _, o := range list[:i] {
				if o.ParentRunID == r.ParentRunID && askedOf(o) != "" {
					before = true
					again = again || askedOf(o) == askedOf(r)
				}
			}
			day := r.StartedAt.UTC()
			week := day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
			for _, group := range groups(r) {
				c.add(group+" "+week.Format(time.DateOnly), 1, one(again), one(before && !again))
			}
		}
	}
	return c.lines()
}

// call is a tool call of a thread.
type call struct {
	by          *record.Run // the run that made it first; nil: none did
	tool        string
	took        *int64
	has, failed bool
}

// callsOf are the tool calls of the runs that have ended, by thread and id. A result may come with a later run or its input.
func callsOf(runs []*record.Run) map[string]map[string]*call {
	all := map[string]map[string]*call{}
	first := slices.Clone(runs)
	slices.SortStableFunc(first, func(a, b *record.Run) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.RunID, b.RunID))
	})
	for _, r := range first {
		if r.Status == record.StatusRunning {
			continue
		}
		calls := all[r.ThreadID]
		if calls == nil {
			calls = map[string]*call{}
			all[r.ThreadID] = calls
		}
		of := func(id string) *call {
			if calls[id] == nil {
				calls[id] = &call{}
			}
			return calls[id]
		}
		for _, m := range r.Messages {
			var said struct {
				ToolCalls []struct {
					ID       string
					Function struct{ Name string }
				}
			}
			if m.Role != agui.RoleAssistant {
				continue
			}
			if err := json.Unmarshal(m.Raw, &said); err != nil {
				panic(err) // an assistant message of a record
			}
			for _, said := range said.ToolCalls {
				if c := of(said.ID); c.by == nil {
					c.by, c.tool = r, said.Function.Name
					if times := r.Stats.ToolCallTimes[said.ID]; len(times) == 2 {
						took := times[1] - times[0]
						c.took = &took
					}
				}
			}
		}
		result := func(m agui.Message) {
			var said struct{ ToolCallID string }
			if m.Role != agui.RoleTool {
				return
			}
			if err := json.Unmarshal(m.Raw, &said); err != nil {
				panic(err) // a tool message of a record
			}
			c := of(said.ToolCallID)
			c.has, c.failed = true, c.failed || m.Get("error") != nil
		}
		for _, m := range r.Messages {
			result(m)
		}
		last := 0 // behind the last message of an agent
		for i, m := range r.InputMessages {
			if m.Role == agui.RoleAssistant || m.Role == agui.RoleReasoning || m.Role == agui.RoleActivity {
				last = i + 1
			}
		}
		for _, m := range r.InputMessages[last:] {
			result(m)
		}
	}
	return all
}

// questions are what each file must say of runs, counted in Go; line is how its rows are written for that.
var questions = map[string]struct {
	line  string
	count func(runs []*record.Run, in within) []string
}{
	"regenerations": {"agent || ' ' || model || ' ' || toString(week) || ' [' || toString(runs) || ' ' || toString(regenerated) || ' ' || toString(edited) || ']'", func(runs []*record.Run, in within) []string {
		return askedAgain(runs, in, func(r *record.Run) []string { return []string{r.Agent + " " + modelOf(r)} })
	}},
	"regenerations_by_label": {"key || ' ' || value || ' ' || toString(week) || ' [' || toString(runs) || ' ' || toString(regenerated) || ' ' || toString(edited) || ']'", func(runs []*record.Run, in within) []string {
		return askedAgain(runs, in, func(r *record.Run) (labels []string) {
			for k, v := range r.Labels {
				labels = append(labels, k+" "+v)
			}
			return labels
		})
	}},
	"unused_branches": {"agent || ' [' || toString(runs) || ' ' || toString(tokens) || ' ' || toString(ifNull(round(money * 1000000), 0)) || ' ' || toString(unpriced_tokens) || ']'", func(runs []*record.Run, in within) []string {
		c := counted{}
		for _, list := range byStart(runs) {
			latest := list[len(list)-1].BranchID
			for _, r := range list {
				// Something parts from this run or from a later one of its branch.
				wentOn := slices.ContainsFunc(list, func(o *record.Run) bool {
					return o.BranchID != r.BranchID && slices.ContainsFunc(list, func(p *record.Run) bool {
						return p.RunID == o.ParentRunID && p.BranchID == r.BranchID && p.Depth >= r.Depth
					})
				})
				if r.BranchID == latest || wentOn || !in.has(r.StartedAt) {
					continue
				}
				tokens := int64(0)
				for _, u := range r.Stats.Usage {
					tokens += u.TotalTokens
				}
				cost, priced := costOf(r)
				unpriced := tokens
				if priced {
					unpriced = 0
				}
				c.add(r.Agent, 1, float64(tokens), cost, float64(unpriced))
			}
		}
		return c.lines()
	}},
	"tools": {"tool || ' [' || toString(calls) || ' ' || toString(failures) || ' ' || toString(without_result) || ' ' || toString(timed) || '] ' || toString(ifNull(p95_ms, -1))", func(runs []*record.Run, in within) []string {
		c, took := counted{}, map[string][]int64{}
		for _, calls := range callsOf(runs) {
			for _, call := range calls {
				if call.by == nil || !in.has(call.by.StartedAt) {
					continue
				}
				c.add(call.tool, 1, one(call.failed), one(!call.has), one(call.took != nil))
				if call.took != nil {
					took[call.tool] = append(took[call.tool], *call.took)
				}
			}
		}
		lines := c.lines()
		for i, line := range lines {
			tool, _, _ := strings.Cut(line, " ")
			p95 := int64(-1)
			if list := slices.Sorted(slices.Values(took[tool])); len(list) > 0 {
				p95 = quantileOf(list, 0.95)
			}
			lines[i] = fmt.Sprint(line, " ", p95)
		}
		return lines
	}},
	"ends": {"agent || ' ' || status || ' ' || error_code || ' ' || cancelled_by || ' [' || toString(runs) || ']'", func(runs []*record.Run, in within) []string {
		c := counted{}
		for _, r := range in.of(runs) {
			var end struct{ Type, Code string }
			if r.Terminal != nil {
				if err := json.Unmarshal(r.Terminal, &end); err != nil {
					panic(err) // an event of a record
				}
			}
			code, by := "", ""
			if end.Type == string(agui.RunError) {
				code = end.Code
			}
			switch {
			case r.Status == record.StatusCancelled && r.Synthetic:
				by = "skein"
			case r.Status == record.StatusCancelled:
				by = "agent"
			}
			c.add(fmt.Sprint(r.Agent, " ", r.Status, " ", code, " ", by), 1)
		}
		return c.lines()
	}},
	"first_token": {"agent || ' [' || toString(runs) || '] ' || toString(p50_p95_p99)", func(runs []*record.Run, in within) []string {
		of := map[string][]int64{}
		for _, r := range in.of(runs) {
			if r.Stats.TimeToFirstToken != nil {
				of[r.Agent] = append(of[r.Agent], *r.Stats.TimeToFirstToken)
			}
		}
		var out []string
		for _, agent := range slices.Sorted(maps.Keys(of)) {
			list := of[agent]
			slices.Sort(list)
			out = append(out, fmt.Sprintf("%s [%d] [%d,%d,%d]", agent, len(list), quantileOf(list, 0.5), quantileOf(list, 0.95), quantileOf(list, 0.99)))
		}
		return out
	}},
	"interrupts": {"agent || ' [' || toString(interrupts) || ' ' || toString(unanswered) || '] ' || toString([ifNull(p50_wait_ms, 0), ifNull(p95_wait_ms, 0), ifNull(longest_wait_ms, 0)])", func(runs []*record.Run, in within) []string {
		type interrupt struct {
			by               *record.Run // the run that it ended first; nil: none
			opened, answered time.Time
		}
		c, waits := counted{}, map[string][]int64{}
		for _, list := range byStart(runs) {
			all := map[string]*interrupt{}
			of := func(raw json.RawMessage, name string) *interrupt {
				id := string(agui.Lookup(raw, name))
				if all[id] == nil {
					all[id] = &interrupt{}
				}
				return all[id]
			}
			for _, r := range list {
				if r.Status == record.StatusRunning {
					continue
				}
				for _, raw := range r.Interrupts {
					if i := of(raw, "id"); i.by == nil || r.EndedAt.Before(i.opened) {
						i.by, i.opened = r, *r.EndedAt
					}
				}
				for _, raw := range r.Resumes {
					if i := of(raw, "interruptId"); i.answered.IsZero() || r.StartedAt.Before(i.answered) {
						i.answered = r.StartedAt
					}
				}
			}
			for _, i := range all {
				if i.by == nil || !in.has(i.opened) {
					continue
				}
				c.add(i.by.Agent, 1, one(i.answered.IsZero()))
				if !i.answered.IsZero() {
					waits[i.by.Agent] = append(waits[i.by.Agent], i.answered.Sub(i.opened).Milliseconds())
				}
			}
		}
		lines := c.lines()
		for i, line := range lines {
			agent, _, _ := strings.Cut(line, " ")
			list := append(waits[agent], 0)[:max(1, len(waits[agent]))] // 0 where none is answered
			slices.Sort(list)
			lines[i] = fmt.Sprintf("%s [%d,%d,%d]", line, quantileOf(list, 0.5), quantileOf(list, 0.95), slices.Max(list))
		}
		return lines
	}},
	"deep_threads": {"thread_id || ' ' || toString(deepest) || ' ' || toString(widest) || ' ' || toString(runs)", func(runs []*record.Run, in within) []string {
		type thread struct {
			id            string
			deep, wide, n int
		}
		var all []thread
		for id, list := range byStart(runs) {
			if len(in.of(list)) == 0 {
				continue
			}
			th, children := thread{id: id, n: len(list)}, map[string]int{}
			for _, r := range list {
				th.deep = max(th.deep, r.Depth)
				children[r.ParentRunID]++
				th.wide = max(th.wide, children[r.ParentRunID])
			}
			all = append(all, th)
		}
		slices.SortFunc(all, func(a, b thread) int {
			return cmp.Or(cmp.Compare(b.deep, a.deep), cmp.Compare(b.wide, a.wide), cmp.Compare(a.id, b.id))
		})
		var out []string
		for _, th := range all[:min(20, len(all))] {
			out = append(out, fmt.Sprint(th.id, " ", th.deep, " ", th.wide, " ", th.n))
		}
		slices.Sort(out)
		return out
	}},
	"violations": {"agent || ' ' || rule || ' [' || toString(runs) || ' ' || toString(violations) || ']'", func(runs []*record.Run, in within) []string {
		c := counted{}
		for _, r := range in.of(runs) {
			for rule, n := range r.Stats.Anomalies {
				c.add(r.Agent+" "+rule, 1, float64(n))
			}
		}
		return c.lines()
	}},
	"returns": {"toString(first_day) || ' +' || toString(days_later) || ' [' || toString(threads) || ']'", func(runs []*record.Run, in within) []string {
		c := counted{}
		for _, list := range byStart(runs) {
			days := map[time.Time]bool{}
			first := list[0].StartedAt
			for _, r := range list {
				if first = minTime(first, r.StartedAt); r.StartedAt.Before(in.to) {
					days[r.StartedAt.Truncate(24*time.Hour)] = true
				}
			}
			if !in.has(first) {
				continue
			}
			sorted := slices.SortedFunc(maps.Keys(days), time.Time.Compare)
			for _, d := range sorted {
				c.add(fmt.Sprintf("%s +%d", sorted[0].Format(time.DateOnly), int(d.Sub(sorted[0]).Hours())/24), 1)
			}
		}
		return c.lines()
	}},
	"compression": {"agent || ' [' || toString(event_bytes) || ' ' || toString(message_bytes) || ']'", func(runs []*record.Run, in within) []string {
		c := counted{}
		for _, r := range in.of(runs) {
			if r.Status == record.StatusRunning {
				continue
			}
			own, events := 0, int64(0)
			for _, m := range r.Messages {
				own += len(m.Raw)
			}
			for _, n := range r.Stats.EventBytes {
				events += n
			}
			c.add(r.Agent, float64(events), float64(own))
		}
		return c.lines()
	}},
}

// Each question in docs/questions gives what Go counts over the same runs, generated and recorded ones, stale versions and another tenant's runs beside them.
func TestQuestions_SayWhatGoCounts(t *testing.T) {
	s := open(t)
	for model, price := range prices {
		if err := s.exec(t.Context(), "INSERT INTO prices (model, input_per_million, output_per_million) VALUES (?, ?, ?)", model, price.input, price.output); err != nil {
			t.Fatal(err)
		}
	}
	const seed = 25
	entries, made := talks(t, seed)
	var stale, whole []store.Entry
	for i, e := range entries {
		other := e
		other.Tenant = "another"
		if i%2 == 0 {
			stale = append(stale, e, other)
		} else {
			whole = append(whole, e, other)
		}
	}
	entries, played := recorded(t)
	whole = append(whole, entries...)
	for _, part := range [][]store.Entry{stale, whole} {
		if err := s.Write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(questionsDir, "*.sql"))
	if err != nil || len(files) != len(questions) {
		t.Errorf("%d files, %v; the test knows %d questions", len(files), err, len(questions))
	}
	always := within{time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	inside := within{time.Date(2026, 9, 6, 0, 0, 0, 0, time.UTC), time.Date(2026, 9, 12, 12, 0, 0, 0, time.UTC)} // the data
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		t.Run(name, func(t *testing.T) {
			question, known := questions[name]
			if !known {
				t.Fatal("the test does not know the question")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				tenant string
				runs   []*record.Run
				in     within
			}{{"t", made, always}, {"t", made, inside}, {"recorded", played, always}, {"recorded", played, inside}} {
				args := named{"tenant": c.tenant, "from": c.in.from.Format(time.DateTime), "to": c.in.to.Format(time.DateTime)}
				var got []string
				if err := s.each(t.Context(), "SELECT "+question.line+" FROM ("+string(text)+")", args, func(scan scan) error {
					var line string
					err := scan(&line)
					got = append(got, line)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				slices.Sort(got)
				want := question.count(c.runs, c.in)
				if len(want) == 0 && (c.tenant == "t" || c.in == always) {
					t.Errorf("%s: no rows from %v: the range shows nothing", c.tenant, c.in.from)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, seed %d, from %v:\n got %s\nwant %s", c.tenant, seed, c.in.from, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
				}
			}
		})
	}
}
