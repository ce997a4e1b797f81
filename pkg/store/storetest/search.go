package storetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// searchBounds are beyond what the suite reads.
var searchBounds = search.Bounds{Rows: 10_000_000, Time: time.Minute}

// searchedRun is a generated run, with what the reference needs to know of it beside its record.
type searchedRun struct {
	*record.Run
	texts  []string           // of its messages
	asked  string             // the text of the user's new message
	failed map[string]int     // calls that failed, by tool, be it by a later run or its input
	took   map[string][]int64 // milliseconds of the calls whose run has their result, by tool
}

// pick returns one of the values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// searchedRuns generates runs of a tenant's threads: branches, tools with results in the run or a later one, errors, labels, texts.
func searchedRuns(r *rand.Rand, tenant string, n int) []*searchedRun {
	var all []*searchedRun
	threads := map[string][]*searchedRun{}
	for i := range n {
		thread := fmt.Sprint(pick(r, "a", "ab", "b%", "ü"), r.IntN(5))
		k := key{tenant, thread, fmt.Sprintf("run-%d", i)}
		status := pick(r, record.StatusFinished, record.StatusFinished, record.StatusError, record.StatusInterrupted, record.StatusCancelled,
			record.StatusAbandoned, record.StatusRunning)
		run := &searchedRun{Run: k.record(int64(10*i), status), failed: map[string]int{}, took: map[string][]int64{}}
		run.Messages = nil
		run.Agent = pick(r, "", "shop", "desk", "it's")
		run.Labels = map[string]string{}
		for _, key := range []string{"user", "env", "a'b\\"} {
			if r.IntN(2) == 0 {
				run.Labels[key] = pick(r, "", "ann", "bob", "x=y")
			}
		}
		before := threads[thread]
		if len(before) > 0 && r.IntN(4) > 0 {
			parent := pick(r, before...)
			run.ParentRunID, run.Depth = parent.RunID, parent.Depth+1
			run.ParentBy = record.ParentContent
			run.Rewrote = pick(r, nil, nil, []string{"rewound"}, []string{"trimmed", "edited"})
		} else if r.IntN(3) == 0 {
			run.SpawnedBy = "spawner"
		}
		// Weeks, days and hours apart, many at the same time.
		run.StartedAt = epoch.Add(time.Duration(r.IntN(30*24)) * time.Hour).Add(time.Duration(r.IntN(3)) * time.Millisecond)
		run.question(r, i)
		run.call(r, i, before)
		for _, u := range []record.TokenUsage{{Model: "large"}, {Provider: "a", Model: "large"}, {Provider: "a", Model: "small"}} {
			if r.IntN(2) == 0 {
				u.InputTokens, u.OutputTokens = pick(r, nil, new(int64(r.IntN(9)))), pick(r, nil, new(int64(r.IntN(5))))
				run.Stats.Usage = append(run.Stats.Usage, u)
			}
		}
		if status != record.StatusRunning {
			took := int64(r.IntN(6) * 1000)
			end := run.StartedAt.Add(time.Duration(took) * time.Millisecond)
			run.Stats.Duration, run.EndedAt = &took, &end
		}
		if r.IntN(3) > 0 {
			first := int64(r.IntN(500))
			run.Stats.TimeToFirstToken = &first
		}
		switch status {
		case record.StatusError:
			text := pick(r, "went wrong", "Délai dépassé\n  in GROSSE.py: no é left")
			run.Terminal = json.RawMessage(fmt.Sprintf(`{"type":"RUN_ERROR","code":%q,"message":%q}`, pick(r, "timeout", "quota", ""), text))
			run.texts = append(run.texts, text)
		case record.StatusInterrupted:
			for j := range 1 + r.IntN(2) {
				run.Interrupts = append(run.Interrupts, json.RawMessage(fmt.Sprintf(`{"id":"i%d"}`, j)))
			}
		}
		run.MessageCount = len(run.Messages) + len(run.InputMessages)
		all, threads[thread] = append(all, run), append(before, run)
	}
	return all
}

// question has the input bring a message of a user.
func (run *searchedRun) question(r *rand.Rand, i int) {
	if r.IntN(5) == 0 {
		return
	}
	run.asked = pick(r, "Where is Paris?", "where is ÉCLAIR", "100% sure_thing", "tell me\nmore \"please\"", "ΟΔΥΣΣΕΥΣ",
		"Große STRASSE nach İstanbul: 300 \u212a", "οδυσσευς in der große Straße")
	m := message(fmt.Sprint("u", i), "user", run.asked)
	if r.IntN(3) == 0 { // the same text as parts
		parts, err := json.Marshal(map[string]any{"id": m.ID, "role": "user", "content": []any{
			map[string]string{"type": "text", "text": run.asked}, map[string]string{"type": "image", "text": "hidden"},
		}})
		if err != nil {
			panic(err) // of strings
		}
		m.Raw, run.asked = parts, run.asked+" in parts"
	}
	run.InputMessages = append(run.InputMessages, m)
	run.texts = append(run.texts, strings.TrimSuffix(run.asked, " in parts"))
}

// call has the run answer, call tools, and bring the results of earlier runs.
func (run *searchedRun) call(r *rand.Rand, i int, before []*searchedRun) {
	text := pick(r, "It is in France.", "An éclair is a cake", "Paris is 100 km away", "50% of it")
	run.Messages = append(run.Messages, message(fmt.Sprint("a", i), "assistant", text))
	run.texts = append(run.texts, text)
	timed, times := r.IntN(4) > 0, map[string][]int64{} // else its record is at the limit of its size
	for j := range r.IntN(3) {
		tool, id := pick(r, "search", "fetch", "o'tool"), fmt.Sprintf("c%d-%d", i, j)
		run.Stats.ToolCalls = maps.Clone(run.Stats.ToolCalls)
		if run.Stats.ToolCalls == nil {
			run.Stats.ToolCalls = map[string]int64{}
		}
		run.Stats.ToolCalls[tool]++
		raw := fmt.Sprintf(`{"id":"m%s","role":"assistant","toolCalls":[{"id":"%s","type":"function","function":{"name":%q,"arguments":"{}"}}]}`, id, id, tool)
		run.Messages = append(run.Messages, agui.Message{ID: "m" + id, Role: agui.RoleAssistant, Raw: json.RawMessage(raw)})
		if timed {
			times[id] = []int64{int64(r.IntN(1000))}
		}
		switch r.IntN(3) {
		case 0:
			raw := fmt.Sprintf(`{"id":"r%s","role":"tool","toolCallId":"%s","content":"none","error":"went wrong"}`, id, id)
			run.Messages = append(run.Messages, agui.Message{ID: "r" + id, Role: agui.RoleTool, Raw: json.RawMessage(raw)})
			run.texts = append(run.texts, "none", "went wrong")
			if run.Status != record.StatusRunning {
				run.failed[tool]++
			}
			if timed {
				took := int64(r.IntN(5000))
				times[id] = append(times[id], times[id][0]+took)
				if run.Status != record.StatusRunning {
					run.took[tool] = append(run.took[tool], took)
				}
			}
		case 1:
			run.PendingToolCalls = append(run.PendingToolCalls, id)
		}
	}
	if timed {
		run.Stats.ToolCallTimes = times
	}
	if run.Status == record.StatusRunning {
		return
	}
	for _, b := range before { // the result of a call that was left to the client
		if b.Status == record.StatusRunning || len(b.PendingToolCalls) != 1 || r.IntN(3) > 0 {
			continue
		}
		id := b.PendingToolCalls[0]
		for _, m := range b.Messages {
			var said struct {
				ToolCalls []struct {
					ID       string
					Function struct{ Name string }
				}
			}
			if err := json.Unmarshal(m.Raw, &said); err != nil {
				panic(err) // made above
			}
			if len(said.ToolCalls) == 1 && said.ToolCalls[0].ID == id {
				b.failed[said.ToolCalls[0].Function.Name]++
			}
		}
		b.PendingToolCalls = nil // answered once; its record says the same again
		raw := fmt.Sprintf(`{"id":"late-%s","role":"tool","toolCallId":"%s","content":"late %s","error":"too late"}`, id, id, id)
		result := agui.Message{ID: "late-" + id, Role: agui.RoleTool, Raw: json.RawMessage(raw)}
		run.texts = append(run.texts, "late "+id, "too late")
		run.Messages = append(run.Messages, result)
		if r.IntN(2) == 0 { // approved: the run that goes on makes the result itself
			continue
		}
		run.InputMessages = append(run.InputMessages, result)
		run.asked += " and " + id
	}
}

// rewrote says what a run is among its siblings, which come in the order of their start.
func rewrote(all []*searchedRun, run *searchedRun) string {
	if run.asked == "" || run.SpawnedBy != "" {
		return ""
	}
	kind := ""
	for _, o := range all {
		if o == run {
			return kind
		}
		if o.ThreadID != run.ThreadID || o.ParentRunID != run.ParentRunID || o.asked == "" || o.SpawnedBy != "" {
			continue
		}
		if o.asked == run.asked {
			return search.Regeneration
		}
		kind = search.Edit
	}
	return kind
}

// folded is a reference of its own for letters of either case.
func folded(s string) string {
	return strings.Map(func(r rune) rune {
		first := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			first = min(first, f)
		}
		return first
	}, strings.NewReplacer("ß", "ss", "ẞ", "ss", "İ", "i").Replace(s))
}

// wants reports whether a filter selects a run.
func wants(f search.Filter, all []*searchedRun, run *searchedRun) bool {
	switch {
	case !f.Since.IsZero() && run.StartedAt.Before(f.Since), !f.Until.IsZero() && !run.StartedAt.Before(f.Until),
		len(f.Statuses) > 0 && !slices.Contains(f.Statuses, run.Status),
		f.Agent == search.NoAgent && run.Agent != "", f.Agent != "" && f.Agent != search.NoAgent && run.Agent != f.Agent,
		f.Depth != nil && (run.Depth < f.Depth.Min || run.Depth > f.Depth.Max),
		!strings.HasPrefix(run.ThreadID, f.Prefix),
		f.Pending && len(run.PendingToolCalls) == 0,
		f.Rewrote != "" && rewrote(all, run) != f.Rewrote && !slices.Contains(run.Rewrote, f.Rewrote),
		f.Error == search.ErrorAny && run.Status != record.StatusError:
		return false
	}
	if f.Error != "" && f.Error != search.ErrorAny {
		var said struct{ Code string }
		if run.Status != record.StatusError || json.Unmarshal(run.Terminal, &said) != nil || said.Code != f.Error {
			return false
		}
	}
	if _, has := run.Stats.ToolCalls[f.Tool]; f.Tool != "" && !has {
		return false
	}
	if f.Model != "" && !slices.Contains(models(run), f.Model) {
		return false
	}
	for _, l := range f.Labels {
		if v, has := run.Labels[l.Key]; !has || !l.Any && v != l.Value {
			return false
		}
	}
	has := func(text string, form func(string) string) bool {
		return !slices.ContainsFunc(f.Words, func(w string) bool { return !strings.Contains(form(text), form(w)) })
	}
	return len(f.Words) == 0 || has(run.ThreadID, foldedID) || has(run.RunID, foldedID) ||
		run.Status != record.StatusRunning && slices.ContainsFunc(run.texts, func(text string) bool { return has(text, folded) })
}

// foldedID is the same for ids, of which only A to Z have a case.
func foldedID(id string) string {
	b := []byte(id)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// someFilter returns a filter with about two conditions.
func someFilter(r *rand.Rand) search.Filter {
	var f search.Filter
	for range r.IntN(4) {
		switch r.IntN(13) {
		case 0:
			f.Since = epoch.Add(time.Duration(r.IntN(20*24)) * time.Hour)
		case 1:
			f.Until = epoch.Add(time.Duration(10*24+r.IntN(20*24)) * time.Hour)
		case 2:
			f.Statuses = []record.Status{pick(r, record.StatusFinished, record.StatusRunning), record.StatusError}[:1+r.IntN(2)]
		case 3:
			f.Agent = pick(r, "shop", "desk", "it's", "sho", search.NoAgent)
		case 4:
			f.Labels = append(f.Labels, search.LabelIs{Key: pick(r, "user", "env", "a'b\\", "none"), Value: pick(r, "", "ann", "x=y"),
				Any: r.IntN(3) == 0})
		case 5:
			f.Tool = pick(r, "search", "o'tool", "sear")
		case 6:
			f.Model = pick(r, "large", "small", "other")
		case 7:
			f.Error = pick(r, search.ErrorAny, "timeout", "quota", "nothing")
		case 8:
			f.Rewrote = pick(r, search.Regeneration, search.Edit, "rewound", "edited", "replaced")
		case 9:
			f.Prefix = pick(r, "a", "ab", "b%", "%", "ü")
		case 12:
			f.Pending = true
		case 11:
			f.Depth = pick(r, &search.Depth{Max: 0}, &search.Depth{Min: 1, Max: 1}, &search.Depth{Min: 1, Max: math.MaxInt32})
		case 10:
			f.Words = [][]string{{"paris"}, {"ÉCLAIR"}, {"100%"}, {"is", "PARIS"}, {`"please"`}, {"e_t"}, {"hidden"}, {"late"},
				{"Οδυσσευς"}, {"ΔΥΣ"}, {"straße", "GROSSE"}, {"istanbul", "300", "k"}, {"İSTANBUL", "NACH"},
				{"dépassÉ", "große.py"}, {"WRONG"}, {"RUN-1"}, {"un-", "2"}, {"B%"}, {"Ü"}, {"ü"}}[r.IntN(20)]
		}
	}
	return f
}

// searched writes generated runs of two tenants, older versions of them first, and returns those of acme.
func searched(t *testing.T, s Store, r *rand.Rand, n int) []*searchedRun {
	t.Helper()
	all := searchedRuns(r, "acme", n)
	var stale, whole []store.Entry
	for i, run := range append(slices.Clone(all), searchedRuns(r, "umbrella", n/4)...) {
		k := key{run.Tenant, run.ThreadID, run.RunID}
		old := k.record(run.Raw.First, record.StatusRunning)
		old.StartedAt, old.Agent = run.StartedAt, "stale"
		stale = append(stale, k.entry(int64(i), old))
		whole = append(whole, k.entry(int64(1000+i), run.Run))
	}
	gone := key{"acme", "a0", "erased"}
	stale = append(stale, gone.entry(900, gone.record(3, record.StatusError)))
	write(t, s, stale...)
	write(t, s, append(whole, gone.entry(5000, nil))...)
	return all
}

func searchSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 25))
}

// A search finds what a plain filter over the same runs finds, in its order, in pages of any size.
func searches(t *testing.T, s Store) {
	r := searchSeed(t)
	all := searched(t, s, r, 160)
	filters := []search.Filter{{Words: []string{"TOO", "late"}}, {Agent: search.NoAgent}}
	for len(filters) < 20 {
		filters = append(filters, someFilter(r))
	}
	for _, filter := range filters {
		q := search.Query{
			Filter: filter, Sort: pick(r, search.SortStarted, search.SortDuration, search.SortTokens), Ascending: r.IntN(2) == 0,
			Limit: pick(r, 15+r.IntN(60), 1000), Bounds: searchBounds,
		}
		var want []string
		matching := slices.DeleteFunc(slices.Clone(all), func(run *searchedRun) bool { return !wants(q.Filter, all, run) })
		sortKey := func(run *searchedRun) int64 {
			switch q.Sort {
			case search.SortDuration:
				if run.Stats.Duration == nil {
					return -1
				}
				return *run.Stats.Duration
			case search.SortTokens:
				if _, _, total := tokens(run, nil); total != nil {
					return *total
				}
				return -1
			}
			return run.StartedAt.UnixMilli()
		}
		slices.SortFunc(matching, func(a, b *searchedRun) int {
			c := cmp.Or(cmp.Compare(sortKey(a), sortKey(b)), cmp.Compare(a.ThreadID, b.ThreadID), cmp.Compare(a.RunID, b.RunID))
			if q.Ascending {
				return c
			}
			return -c
		})
		for _, run := range matching {
			want = append(want, run.RunID)
		}
		var got []string
		for pages := 0; ; pages++ {
			page, err := s.Search(t.Context(), "acme", q)
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			for i := range page.Runs {
				got = append(got, page.Runs[i].RunID)
			}
			if page.Next == nil {
				break
			}
			if len(page.Runs) != q.Limit || pages > len(all) {
				t.Fatalf("%+v: a page of %d that goes on", q, len(page.Runs))
			}
			q.After = page.Next
		}
		if !slices.Equal(got, want) {
			q.After = nil
			t.Errorf("%+v:\n got %v\nwant %v", q, got, want)
		}
	}
	page, err := s.Search(t.Context(), "acme", search.Query{Sort: search.SortStarted, Limit: 1000, Bounds: searchBounds})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Runs {
		found := &page.Runs[i]
		at := slices.IndexFunc(all, func(run *searchedRun) bool { return run.RunID == found.RunID })
		equal(t, found.RunID, jsonOf(t, found), jsonOf(t, wantedRun(all[at])))
	}
	_, err = s.Search(t.Context(), "acme", search.Query{Sort: search.SortStarted, Limit: 10,
		Bounds: search.Bounds{Rows: 5, Time: time.Minute}})
	if !errors.Is(err, search.ErrTooMuch) {
		t.Errorf("more rows than the bound: %v, want ErrTooMuch", err)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantedRun is how a search has to tell a generated run.
func wantedRun(run *searchedRun) *search.Run {
	w := &search.Run{
		ThreadID: run.ThreadID, RunID: run.RunID, ParentRunID: run.ParentRunID, BranchID: run.BranchID, Depth: run.Depth,
		Status: run.Status, Agent: run.Agent, Labels: run.Labels, StartedAt: run.StartedAt, EndedAt: run.EndedAt,
		DurationMs: run.Stats.Duration, TimeToFirstTokenMs: run.Stats.TimeToFirstToken, ToolCalls: run.Stats.ToolCalls,
		Models: models(run), Interrupts: len(run.Interrupts), Messages: run.MessageCount, Rewrote: run.Rewrote,
		Reply: run.texts[slices.IndexFunc(run.texts, func(s string) bool {
			return strings.HasPrefix(s, "It") || strings.HasPrefix(s, "An") || strings.HasPrefix(s, "Paris") || strings.HasPrefix(s, "50")
		})],
	}
	if run.InputMessages != nil && run.InputMessages[0].Role == agui.RoleUser {
		w.Question = run.texts[0]
	}
	w.InputTokens, w.OutputTokens, w.Tokens = tokens(run, nil)
	if run.Status == record.StatusError {
		w.ErrorMessage = run.texts[len(run.texts)-1]
		w.ErrorCode = strings.Split(string(run.Terminal), `"`)[7]
	}
	return w
}

// models are the models that a run's usage names, sorted.
func models(run *searchedRun) []string {
	names := map[string]bool{}
	for _, u := range run.Stats.Usage {
		names[string(u.Model)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// tokens sums a run's usage, of one model or of all: what was reported, and of the entries that have both counts their total.
func tokens(run *searchedRun, model *string) (input, output, total *int64) {
	add := func(sum **int64, n int64) {
		if *sum == nil {
			*sum = new(int64)
		}
		**sum += n
	}
	for _, u := range run.Stats.Usage {
		if model != nil && *model != string(u.Model) {
			continue
		}
		if u.InputTokens != nil {
			add(&input, *u.InputTokens)
		}
		if u.OutputTokens != nil {
			add(&output, *u.OutputTokens)
		}
		if u.InputTokens != nil && u.OutputTokens != nil {
			add(&total, *u.InputTokens+*u.OutputTokens)
		}
	}
	return input, output, total
}
