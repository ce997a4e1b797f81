package conformance_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

// row is a row of docs/fold.md's differences, and how the kit recognises it. A recogniser says no more than that this is
// the row. What is compared in the place of the event that met it has to be the same for both, or the comparison fails.
type row struct {
	// name is how the row's first cell begins.
	name string
	// event recognises it at the event at which the two part, and returns what is compared instead; nil is no event.
	event func(p *parting) (instead json.RawMessage, ok bool)
	// start recognises it in what a run starts from, and applies it to one of the two.
	start func(s *startParting) bool
	// values counts the places of a result at which it shows, where that makes no difference to conformance.Diff.
	values func(want conformance.Result, got folded) int
}

// documentedRows are the rows that generated streams meet.
var documentedRows = []row{
	{name: "ids of messages from `THINKING_*`", values: func(_ conformance.Result, got folded) int {
		return bytes.Count(got.Messages, []byte(`"id":"thinking-`))
	}},
	{name: "numbers that no double can hold", event: func(p *parting) (json.RawMessage, bool) {
		// Infinity, which the client still holds in the place of the state that it would write as null, has no members; null
		// makes its patch fail.
		if p.op == nil && p.want.State == nil && string(p.before.State) == "null" {
			return nil, slices.ContainsFunc(p.sent, func(e json.RawMessage) bool { return infinite(decoded(e)) })
		}
		return encode(finite(clone(p.value))), infinite(p.value)
	}},
	{name: "numbers beyond 2^53", values: func(_ conformance.Result, got folded) int {
		return roundedNumbers(got.Messages) + roundedNumbers(got.State)
	}},
	{name: "half a surrogate pair", values: func(_ conformance.Result, got folded) int {
		return halves(got.Messages) + halves(got.State)
	}},
	{name: "patches on a state that is a string", event: onFailing(func(p *parting) bool {
		_, text := p.doc.(string)
		return text && p.op["path"] != ""
	})},
	{name: "a patch that moves the root into itself", event: onFailing(func(p *parting) bool {
		return p.op["op"] == "move" && p.op["from"] == "" && p.op["path"] != ""
	})},
	{name: "names in `from` that are not members", event: onFailing(func(p *parting) bool {
		_, left := p.source()
		if len(left) > 0 {
			return javaScriptNames[left[0]]
		}
		// Once the member is gone, its path leads through what all objects have of that name.
		from, _ := p.op["from"].(string)
		into, _ := p.op["path"].(string)
		steps := stepsOf(from)
		return p.op["op"] == "move" && strings.HasPrefix(into, from+"/") && len(steps) > 0 && javaScriptNames[steps[len(steps)-1]]
	})},
	{name: "`from` of a `move` or `copy` to the root that RFC 6901 does not allow", event: onFailing(func(p *parting) bool {
		at, left := p.source()
		if p.op["path"] != "" || len(left) == 0 {
			return false
		}
		switch at := at.(type) {
		case string:
			return true
		case []any:
			i, digits := looseIndex(left[0])
			return digits && i < len(at)
		}
		return false
	})},
	{name: "a patch that moves or copies something that does not exist to the root", event: onFailing(func(p *parting) bool {
		_, left := p.source()
		return p.op["path"] == "" && len(left) > 0
	})},
	{name: "a `move` whose `path`, after the source was removed from a list, leads into", event: onFailing(func(p *parting) bool {
		_, left := p.source()
		if p.op["op"] != "move" || p.op["path"] == "" || p.op["from"] == "" || len(left) > 0 {
			return false
		}
		doc := removed(clone(p.doc), stepsOf(p.op["from"].(string)))
		steps := stepsOf(p.op["path"].(string))
		at := doc
		for _, step := range steps[:len(steps)-1] {
			if list, ok := at.([]any); ok {
				if i, ok := looseIndex(step); ok {
					step = strconv.Itoa(min(i, len(list)))
				}
			}
			next, ok := member(at, step)
			if !ok {
				break
			}
			at = next
		}
		_, digits := looseIndex(steps[len(steps)-1])
		switch at.(type) {
		case string, json.Number, bool:
			return true
		case []any:
			return !digits
		}
		return false
	})},
	{name: "`test` of an object that has a member `hasOwnProperty`", event: onOperation(func(p *parting) bool {
		return p.op["op"] == "test" && hasMember(p.op["value"], "hasOwnProperty")
	})},
	{name: "a patch that makes an activity's content anything other than an object", event: onFailing(func(p *parting) bool {
		if p.value["type"] != string(agui.ActivityDelta) || p.op["path"] != "" {
			return false
		}
		_, object := p.brought().(obj)
		return !object
	})},
	{name: "a patch that makes the document more than 512 levels deep", event: onFailing(func(p *parting) bool {
		path, _ := p.op["path"].(string)
		return len(stepsOf(path))+depth(p.brought()) > agui.MaxDepth
	})},
	{name: "an event deeper than the table above allows", event: func(p *parting) (json.RawMessage, bool) {
		return nil, p.onlyForSkein() && depth(p.value) > agui.MaxDepth
	}},
	{name: "older forms that only Skein accepts", event: olderForms},
	{name: "in a snapshot or input: a message whose role is not a string, or of an unknown role without an id", event: func(p *parting) (json.RawMessage, bool) {
		found := false
		instead := p.with(func(event obj) {
			in := event
			if input, ok := event["input"].(obj); ok {
				in = input
			}
			list, _ := in["messages"].([]any)
			fit := slices.DeleteFunc(slices.Clone(list), unfit)
			found = len(fit) < len(list)
			in["messages"] = fit
		})
		return instead, found
	}},
	{name: "in a snapshot or input: a message of an unknown role with an id", values: func(_ conformance.Result, got folded) int {
		return bytes.Count(got.Messages, []byte(`"role":"critic"`))
	}},
	{name: "content parts of an unknown type", values: func(_ conformance.Result, got folded) int {
		return bytes.Count(got.Messages, []byte(`"hologram"`)) + bytes.Count(got.Messages, []byte(`"telepathy"`))
	}},
	{name: "members of messages, tool calls and content parts that the protocol does not define", values: func(_ conformance.Result, got folded) int {
		return bytes.Count(got.Messages, []byte(`"vendorField"`))
	}},
	{name: "an input on RUN_STARTED without `messages`", event: func(p *parting) (json.RawMessage, bool) {
		input, ok := p.value["input"].(obj)
		_, has := input["messages"]
		return p.with(func(event obj) {
			if ok {
				event["input"].(obj)["messages"] = []any{}
			}
		}), ok && !has && p.onlyForClient()
	}},
	{name: "in an input: the contents of `tools` and `context`", event: func(p *parting) (json.RawMessage, bool) {
		input, ok := p.value["input"].(obj)
		if !ok || !p.onlyForClient() || input["tools"] == nil && input["context"] == nil && input["resume"] == nil {
			return nil, false
		}
		instead := p.with(func(event obj) {
			input := event["input"].(obj)
			input["tools"], input["context"] = []any{}, []any{}
			answers, _ := input["resume"].([]any)
			for _, a := range answers {
				if a, ok := a.(obj); ok {
					delete(a, "metadata")
					a["status"] = "resolved"
				}
			}
		})
		return instead, !bytes.Equal(instead, encode(p.value))
	}},
	{name: "`toolCalls` of a message that is not an assistant message, with an entry that has no id", event: func(p *parting) (json.RawMessage, bool) {
		id := p.value["toolCallId"]
		if p.value["subtype"] == "tool-call" {
			id = p.value["entityId"]
		}
		return nil, id != nil && slices.ContainsFunc(p.messages(), func(m obj) bool {
			calls, _ := m["toolCalls"].([]any)
			return m["role"] != agui.RoleAssistant && slices.ContainsFunc(calls, func(c any) bool {
				call, object := c.(obj)
				function, _ := call["function"].(obj)
				return !object || call["id"] == id && function["arguments"] == nil
			})
		})
	}},
	{name: "an input whose `state` is `null`", start: func(s *startParting) bool {
		if s.err != nil || string(s.called.State) != "null" || conformance.DiffJSON("", s.want.State, s.got.State) == "" {
			return false
		}
		s.want.State = s.got.State
		return true
	}},
	{name: sharedOverRuns},
	{name: "several activities between messages of one id", start: func(s *startParting) bool {
		var called []agui.Message
		if s.err != nil || json.Unmarshal(s.called.Messages, &called) != nil ||
			len(lineage.InputMessages(s.parent.Messages)) == len(s.parent.Messages) {
			return false
		}
		if unique(lineage.InputMessages(s.parent.Messages)) && unique(called) {
			return false
		}
		s.got = history(s.t, conformance.Conversation(s.want))
		return true
	}},
	{name: "`toolCalls` of an activity that a snapshot put at several positions", event: func(p *parting) (json.RawMessage, bool) {
		places := map[any]int{}
		for _, m := range p.messages() {
			if calls, _ := m["toolCalls"].([]any); len(calls) > 0 && m["role"] == agui.RoleActivity {
				places[m["id"]]++
			}
		}
		for _, n := range places {
			if n > 1 {
				return nil, true
			}
		}
		return nil, false
	}},
	{name: "metadata of a message of an unknown role that is a string or a list", event: func(p *parting) (json.RawMessage, bool) {
		if _, object := p.value["metadata"].(obj); !object {
			return nil, false
		}
		found := slices.ContainsFunc(p.messages(), func(m obj) bool {
			_, object := m["metadata"].(obj)
			return m["metadata"] != nil && !object
		})
		return p.with(func(event obj) { delete(event, "metadata") }), found
	}},
}

// sharedOverRuns is recognised by the chains.
const sharedOverRuns = "one message that a snapshot put at several positions, in later runs"

// notDrawn are the rows that no generated stream meets, and why.
var notDrawn = map[string]string{
	"a patch with a `copy` that leaves the state and all activity contents":    "it takes megabytes: pkg/compact has its tests",
	"a patch that is too much work":                                            "it takes megabytes: pkg/compact has its tests",
	"a snapshot that repeats message ids at several positions":                 "it takes megabytes: pkg/compact has its tests",
	"events for messages that a snapshot put at several positions, after they": "it takes megabytes: pkg/compact has its tests",
	"`encryptedValueType`, which AG-UI 1.1 added":                              "the client of 1.0 takes it out: testdata/differences has it",
	"bytes that are not UTF-8":                                                 "jobs are JSON",
	"order of the members":                                                     "Diff passes over it",
	"an input on RUN_STARTED that contains a message of the history":           "the chains repeat all of the history, on which both agree, and edit it beside the stream",
	"the `state` of an input on RUN_STARTED":                                   "the chains leave it out",
}

// onOperation is a row of an operation of a patch.
func onOperation(meets func(p *parting) bool) func(p *parting) (json.RawMessage, bool) {
	return func(p *parting) (json.RawMessage, bool) {
		if p.op == nil || !meets(p) {
			return nil, false
		}
		return p.withoutOperation(), true
	}
}

// onFailing is a row of an operation that fails for Skein and not for the client.
func onFailing(meets func(p *parting) bool) func(p *parting) (json.RawMessage, bool) {
	return onOperation(func(p *parting) bool { return p.unchanged && meets(p) })
}

// source is how far the operation's from leads.
func (p *parting) source() (at any, left []string) {
	from, ok := p.op["from"].(string)
	if !ok || p.op["op"] != "move" && p.op["op"] != "copy" {
		return nil, nil
	}
	return follow(p.doc, stepsOf(from))
}

// brought is what the operation puts into its place, or nil.
func (p *parting) brought() any {
	switch p.op["op"] {
	case "add", "replace":
		return p.op["value"]
	case "move", "copy":
		v, _ := p.source()
		return v
	}
	return nil
}

// messages are those that both hold before the event.
func (p *parting) messages() (all []obj) {
	v, err := conformance.Decode(p.before.Messages)
	if err != nil {
		panic(err) // the two have been compared
	}
	for _, m := range v.([]any) {
		all = append(all, m.(obj))
	}
	return all
}

// javaScriptNames are what all objects, arrays and functions of JavaScript have, but for those that only a patch of an
// attacker would name.
var javaScriptNames = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`constructor toString toLocaleString valueOf hasOwnProperty isPrototypeOf propertyIsEnumerable
		__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ length map`) {
		all[name] = true
	}
	return all
}()

// looseIndex reads an array index as the client does: any digits, or none, as a 32-bit integer.
func looseIndex(step string) (int, bool) {
	if strings.Trim(step, "0123456789") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(step, 64)
	if err != nil {
		f = 0
	}
	return int(int32(uint32(math.Mod(f, 1<<32)))), true // ~~f
}

// hasMember reports whether an object in a value has a member of the name.
func hasMember(v any, name string) bool {
	switch v := v.(type) {
	case obj:
		if _, ok := v[name]; ok {
			return true
		}
		for _, m := range v {
			if hasMember(m, name) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(m any) bool { return hasMember(m, name) })
	}
	return false
}

// unfit says that a message of a snapshot or input cannot be stored or found.
func unfit(m any) bool {
	message, object := m.(obj)
	role, isString := message["role"].(string)
	_, hasID := message["id"].(string)
	known := slices.Contains([]string{agui.RoleDeveloper, agui.RoleSystem, agui.RoleAssistant, agui.RoleUser, agui.RoleTool,
		agui.RoleReasoning, agui.RoleActivity}, role)
	return object && (!isString || !hasID && !known)
}

// olderForms recognises events of older forms that the client knows no more, and returns their newer ones.
func olderForms(p *parting) (json.RawMessage, bool) {
	if t := p.value["type"]; !p.onlyForClient() && t != string(agui.RunStarted) && t != string(agui.ToolCallResult) {
		return nil, false
	}
	rename := func(o obj, from, to string) {
		if v, ok := o[from]; ok && o[to] == nil {
			o[to] = v
			delete(o, from)
		}
	}
	instead := p.with(func(event obj) {
		switch event["type"] {
		case string(agui.StateDelta):
			rename(event, "patch", "delta")
			if op, ok := event["delta"].(obj); ok {
				event["delta"] = []any{op}
			}
		case string(agui.ToolCallResult):
			if ev, err := agui.Decode(p.event); err == nil {
				event["content"] = ev.JSON(agui.FieldContent) // with its parts upgraded
			}
		case string(agui.StateSnapshot):
			rename(event, "state", "snapshot")
		case string(agui.ReasoningMessageStart):
			if event["role"] == agui.RoleAssistant {
				event["role"] = agui.RoleReasoning
			}
		case string(agui.RunFinished):
			if interrupt, ok := event["interrupt"].(obj); ok && event["outcome"] == "interrupt" {
				event["outcome"] = obj{"type": "interrupt", "interrupts": []any{interrupt}}
			}
		case string(agui.RunStarted):
			named := func(o obj, names ...string) {
				for _, name := range names {
					if _, ok := o[name]; !ok {
						o[name] = "made up"
					}
				}
			}
			named(event, "threadId")
			input, ok := event["input"].(obj)
			if !ok {
				break
			}
			named(input, "threadId", "runId")
			if answer, ok := input["resume"].(obj); ok {
				input["resume"] = []any{answer}
			}
			// The ids that Skein gives are its own.
			messages, _ := input["messages"].([]any)
			if ev, err := agui.Decode(p.event); err == nil && slices.ContainsFunc(messages, olderMessage) {
				list := []any{}
				for _, m := range ev.Input(ev.RunID).Messages {
					list = append(list, m.Raw)
				}
				input["messages"] = list
			}
		}
	})
	return instead, !bytes.Equal(instead, encode(p.value))
}

// olderMessage says that a message of an input has no id or no role, or is a mere string.
func olderMessage(m any) bool {
	message, object := m.(obj)
	_, hasID := message["id"]
	_, hasRole := message["role"]
	_, text := message["content"].(string)
	_, parts := message["content"].([]any)
	return !object || !hasID || !hasRole && (text || parts)
}

// infinite reports whether a value has a number that is infinite to JavaScript.
func infinite(v any) bool { return !bytes.Equal(encode(finite(clone(v))), encode(v)) }

// finite is a value with null in the place of numbers that are infinite to JavaScript.
func finite(v any) any {
	switch v := v.(type) {
	case obj:
		for k, m := range v {
			v[k] = finite(m)
		}
	case []any:
		for i, m := range v {
			v[i] = finite(m)
		}
	case json.Number:
		if f, _ := strconv.ParseFloat(string(v), 64); math.IsInf(f, 0) {
			return nil
		}
	}
	return v
}

var number = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`)

// roundedNumbers counts numbers that no double is equal to.
func roundedNumbers(v json.RawMessage) (n int) {
	if !bytes.ContainsAny(v, "0123456789") {
		return 0
	}
	for _, text := range number.FindAll(withoutStrings(v), -1) {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || len(text) < 10 && !bytes.ContainsAny(text, "eE") {
			continue
		}
		exact, ok := new(big.Rat).SetString(string(text))
		shortest, fine := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
		if ok && fine && exact.Cmp(shortest) != 0 {
			n++
		}
	}
	return n
}

var stringText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func withoutStrings(v json.RawMessage) []byte { return stringText.ReplaceAll(v, []byte(`""`)) }

func halves(v json.RawMessage) int {
	if !bytes.Contains(v, []byte(`\u`)) {
		return 0
	}
	return bytes.Count(conformance.MarkHalves(v), []byte(conformance.Half))
}

// countValues counts the documented differences that a result shows and that make no difference to conformance.Diff.
func countValues(want conformance.Result, got folded) {
	for _, r := range documentedRows {
		if r.values != nil && r.values(want, got) > 0 {
			report.met(r.name)
		}
	}
}

var randomID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// withOurThinking gives messages that come from THINKING_* Skein's ids: the client's are random.
func withOurThinking(want, got conformance.Conversation) conformance.Conversation {
	if !bytes.Contains(got.Messages, []byte(`"id":"thinking-`)) {
		return want
	}
	wanted, have := idsIn(want.Messages), idsIn(got.Messages)
	for i := range min(len(wanted), len(have)) {
		if randomID.MatchString(wanted[i]) && strings.HasPrefix(have[i], "thinking-") {
			want.Messages = bytes.ReplaceAll(want.Messages, encode(wanted[i]), encode(have[i]))
		}
	}
	return want
}

// idsIn are the ids of messages, the last of repeated ones.
func idsIn(messages json.RawMessage) (ids []string) {
	for m := range agui.Elements(messages) {
		id := ""
		if raw := agui.Lookup(m, "id"); agui.IsString(raw) {
			id = agui.TextOf(raw).String()
		}
		ids = append(ids, id)
	}
	return ids
}

// startParting is a run's start on which the client and Skein part.
type startParting struct {
	t      rapid.TB
	parent lineage.History
	called conformance.Start // what Skein is told that the run is called with
	want   conformance.Start // what the client holds
	got    lineage.History
	err    error // of reading what the run is called with
}

func (s *startParting) recognised() bool {
	for _, r := range documentedRows {
		if r.start != nil && r.start(s) {
			report.met(r.name)
			return true
		}
	}
	return false
}

// The kit's list is that of the document: each row is one that generated streams meet, or has a reason why they do not.
func TestRows_AreThoseOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "fold.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Differences from the client\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var cells []string
	for _, line := range strings.Split(section, "\n") {
		if cell, ok := strings.CutPrefix(line, "| "); ok && !strings.HasPrefix(cell, "case |") {
			cell, _, _ = strings.Cut(cell, " | ")
			cells = append(cells, cell)
		}
	}
	if len(cells) == 0 {
		t.Fatal("docs/fold.md has no differences")
	}
	names := []string{}
	for _, r := range documentedRows {
		names = append(names, r.name)
	}
	for name := range notDrawn {
		names = append(names, name)
	}
	for _, name := range names {
		if n := len(slices.DeleteFunc(slices.Clone(cells), func(cell string) bool { return !strings.HasPrefix(cell, name) })); n != 1 {
			t.Errorf("%d rows of docs/fold.md begin with %q, want 1", n, name)
		}
	}
	for _, cell := range cells {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(cell, name) }) {
			t.Errorf("the kit knows no row %q of docs/fold.md: neither in documentedRows nor in notDrawn", cell)
		}
	}
}

// decoded is an event of a stream; nil where it is no JSON.
func decoded(event json.RawMessage) any {
	v, err := conformance.Decode(event)
	if err != nil {
		return nil
	}
	return v
}
