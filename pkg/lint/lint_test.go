package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lint"
)

const (
	started  = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

// said are the findings of a stream, each as "line rule", and its end.
func said(t *testing.T, body string, of func(l *lint.Linter)) (list []string, tally lint.Tally) {
	t.Helper()
	l := lint.New("f", nil, func(f lint.Finding) {
		list = append(list, fmt.Sprintf("%d %s", f.Line, f.Rule))
		if f.Message == "" || f.Help == "" || f.File != "f" || f.Level == "" {
			t.Errorf("a finding is not whole: %+v", f)
		}
	})
	if of != nil {
		of(l)
	} else if err := l.ReadSSE(strings.NewReader(body), 1); err != nil {
		t.Fatal(err)
	}
	l.End()
	return list, l.Tally()
}

// events takes each text as an event of a line of its own.
func events(texts ...string) func(*lint.Linter) {
	return func(l *lint.Linter) {
		for i, e := range texts {
			l.Event([]byte(e), i+1)
		}
	}
}

// Each row is what the client does with such a body; the kit asks it.
func TestLinter_ReadSSEFramesAsTheClient(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"sound":                       {"data: " + started + "\n\ndata: " + finished + "\n\n", ""},
		"without the last empty line": {"data: " + started + "\n\ndata: " + finished, ""},
		"no space, other fields":      {": hi\nevent: x\nid: 1\nretry: 5\ndata:" + started + "\n\ndata:" + finished + "\n\n", ""},
		"a byte order mark":           {"\ufeffdata: " + started + "\n\ndata: " + finished + "\n\n", ""},
		"one event on two lines":      {"data: " + started + "\n\ndata: " + finished[:8] + "\ndata: " + finished[8:] + "\n\n", ""},
		"a CR within":                 {"data: " + started + "\r\n\ndata: " + finished + "\n\n", ""},
		"CR LF": {"data: " + started + "\r\n\r\ndata: {\"type\":\"RAW\",\"event\":1}\r\n\r\ndata: " + finished + "\r\n\r\n",
			"1 sse-crlf"},
		"not separated":         {"data: " + started + "\ndata: " + finished + "\n\n", "1 sse-not-separated"},
		"a space between":       {"data: " + started + "\n \ndata: " + finished + "\n\n", "2 sse-line-ignored,1 sse-not-separated"},
		"[DONE]":                {"data: " + started + "\n\ndata: " + finished + "\n\ndata: [DONE]\n\n", "5 not-json"},
		"no data":               {"data: " + started + "\n\ndata:\n\ndata: " + finished + "\n\n", "3 not-json"},
		"null":                  {"data: null\n\n", "1 not-an-object"},
		"no type":               {"data: {\"type\":\"\"}\n\n", "1 no-type"},
		"nothing":               {"", "0 no-events"},
		"a comment":             {": hi\n\n", "0 no-events"},
		"a page":                {"<html>\n", "1 sse-line-ignored,0 no-events"},
		"lines of JSON":         {started + "\n" + finished + "\n", "1 sse-line-ignored,2 sse-line-ignored,0 no-events"},
		"an unknown type alone": {"data: {\"type\":\"FOO\"}\n\n", "1 unknown-type,0 no-events"},
		"cut":                   {"data: " + started + "\n\n", "1 run-not-ended"},
		"not UTF-8": {"data: " + started + "\n\ndata: {\"type\":\"CUSTOM\",\"name\":\"\xff\",\"value\":1}\n\ndata: " + finished +
			"\n\n", "3 not-utf8"},
		"CR LF before all":   {"data:\r\n\r\ndata: " + started + "\n\ndata: " + finished + "\n\n", ""},
		"CR alone":           {"data: " + started + "\r\rdata: {\"type\":\"RAW\",\"event\":1}\r\rdata: " + finished + "\r\r", "1 sse-crlf"},
		"CR after a comment": {": hi\rdata: " + started + "\n\ndata: " + finished + "\n\n", "2 sse-crlf"},
		"CR before a field":  {"data: " + started + "\rid: 1\n\ndata: " + finished + "\n\n", "1 sse-crlf"},
		"CR within data":     {"data: {\r" + started[1:] + "\n\ndata: " + finished + "\n\n", "1 sse-crlf,2 sse-line-ignored,1 not-json,4 first-event-not-run-started"},
		"CR at the end":      {": hi\r\n\ndata: " + started + "\n\ndata: " + finished + "\r\r", ""},
		"mixed": {"data: " + started + "\n\ndata: {\"type\":\"RAW\",\"event\":1}\r\n\r\ndata: {\"type\":\"FOO\"}\r\rdata: " + finished +
			"\n\r\n", "3 sse-crlf,5 unknown-type"},
	} {
		if got, _ := said(t, c.body, nil); strings.Join(got, ",") != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
		var got []string
		l := lint.New("f", nil, func(f lint.Finding) { got = append(got, fmt.Sprintf("%d %s", f.Line, f.Rule)) })
		if err := l.ReadSSE(iotest.OneByteReader(strings.NewReader(c.body)), 1); err != nil {
			t.Fatal(err)
		}
		if l.End(); strings.Join(got, ",") != c.want {
			t.Errorf("%s, by the byte: found %q, want %q", name, got, c.want)
		}
	}
}

func TestLinter_ReadSSEHoldsAsMuchAsTheClient(t *testing.T) {
	custom := func(n int, c string) string {
		return "data: {\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":\"" + strings.Repeat(c, n) + "\"}\n\n"
	}
	for name, c := range map[string]struct{ large, want string }{
		"bytes":      {custom(10<<20, "x"), "3 sse-frame-too-large"},
		"characters": {custom(5<<20, "é"), ""},
		"pairs":      {custom(5<<20, "😀"), "3 sse-frame-too-large"},
	} {
		if got, _ := said(t, "data: "+started+"\n\n"+c.large+"data: "+finished+"\n\n", nil); strings.Join(got, ",") != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// Runs follow each other in one stream, and what one leaves the next one has.
func TestLinter_PlaysSeveralRuns(t *testing.T) {
	got, tally := said(t, "", events(
		started, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`, finished,
		started, `{"type":"STATE_DELTA","delta":[{"op":"test","path":"/a","value":1}]}`, `{"type":"STATE_DELTA","delta":[{"op":"test","path":"/a","value":2}]}`, finished,
		`{"type":"RUN_ERROR","message":"m"}`, `{"type":"RAW","event":1}`, started, started, finished,
	))
	if want := "6 state-patch-failed,8 error-after-finish,9 event-after-end,11 run-started-twice"; strings.Join(got, ",") != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if tally.Events != 12 || tally.Runs != 4 || tally.Errors != 2 || tally.Warnings != 1 || tally.Notes != 1 || tally.Stops.Event != 9 {
		t.Errorf("%+v", tally)
	}
}

// The client holds what it has sent the agent.
// An event first ends what chunks have left open: there the client stops.
func TestLinter_EndsChunksBeforeWhatTheEventSays(t *testing.T) {
	for next, then := range map[string]string{
		started: "run-started-twice",
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`: "text-content-not-open",
		`{"type":"TEXT_MESSAGE_END","messageId":"m"}`:                 "text-end-not-open",
	} {
		got, _ := said(t, "", events(started, `{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n"}`,
			`{"type":"TOOL_CALL_END","toolCallId":"c","subagentRunId":"s"}`, next))
		if want := "3 subagent-mismatch,4 tool-end-not-open,4 " + then + ",4 run-not-ended"; strings.Join(got, ",") != want {
			t.Errorf("%s: found %q, want %q", next, got, want)
		}
	}
}

func TestNew_StartsFromTheInput(t *testing.T) {
	input, err := agui.DecodeInput([]byte(`{"threadId":"t","runId":"r","messages":[],"state":{"a":1}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	l := lint.New("f", input, func(f lint.Finding) { t.Errorf("found %+v", f) })
	events(started, `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/a","value":2}]}`, finished)(l)
	l.End()
}

func TestLinter_TellsWhatIsOpen(t *testing.T) {
	var message string
	l := lint.New("f", nil, func(f lint.Finding) { message = f.Message })
	events(started, `{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_START","messageId":"b"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`, finished)(l)
	if want := `RUN_FINISHED while a text message is open: "b" of line 3`; message != want {
		t.Errorf("said %q, want %q", message, want)
	}
}

func TestLinter_FindsNumbersThatTheClientRounds(t *testing.T) {
	for number, want := range map[string]string{
		"1": "", "0.1": "", "-0": "", "1e3": "", "9007199254740992": "", "1152921504606846976": "number-rounded",
		"12345678901234567890":  "number-rounded",
		"0.1234567890123456789": "number-rounded", "100000000000000000000": "", "1e400": "number-too-large", "1e-400": "number-rounded",
		"0e-400":                 "",
		`"12345678901234567890"`: "", `"\"12345678901234567890"`: "",
	} {
		got, _ := said(t, "", events(started, `{"type":"CUSTOM","name":"n","value":[`+number+`]}`, finished))
		if strings.TrimPrefix(strings.Join(got, ","), "2 ") != want {
			t.Errorf("%s: found %q, want %q", number, got, want)
		}
	}
}

// An event that only Skein refuses is a note, not an error of the stream.
func TestLinter_ToldApartFromSkein(t *testing.T) {
	deep := `{"type":"CUSTOM","name":"n","value":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`
	got, tally := said(t, "", events(started, deep, finished))
	if strings.Join(got, ",") != "2 skein-refuses" || tally.Notes != 1 {
		t.Errorf("found %q, %+v", got, tally)
	}
	got, _ = said(t, "", events(started, `{"type":"CUSTOM","name":"n","value":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`, finished))
	if strings.Join(got, ",") != "2 skein-refuses" {
		t.Errorf("found %q", got)
	}
	older, tally := said(t, "", events(started, `{"type":"STATE_DELTA","patch":[]}`, finished))
	if strings.Join(older, ",") != "2 member-stripped,2 schema" || !strings.Contains(tally.Stops.Message, "Skein accepts it") {
		t.Errorf("found %q, %+v", older, tally.Stops)
	}
}

// The client 1.0.0 does not check these rules of AG-UI, so it does not stop at their breach.
func TestLinter_ChecksIdsAndVersions(t *testing.T) {
	other := func(e, from, to string) string { return strings.Replace(e, from, to, 1) }
	for name, c := range map[string]struct {
		stream []string
		want   string
	}{
		"sound":                 {[]string{started, finished, other(started, `"r"`, `"r2"`), other(finished, `"r"`, `"r2"`)}, ""},
		"another run's end":     {[]string{started, other(finished, `"r"`, `"q"`)}, "2 run-mismatch"},
		"an end without run":    {[]string{other(finished, `"r"`, `"q"`)}, "1 first-event-not-run-started"},
		"another thread's end":  {[]string{started, other(finished, `"t"`, `"u"`)}, "2 thread-mismatch"},
		"a run of a thread":     {[]string{started, finished, other(started, `"t"`, `"u"`), finished}, "3 thread-mismatch"},
		"interrupts":            {[]string{started, other(finished, `}`, `,"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r"},{"id":"i","reason":"r"}]}}`)}, "2 interrupt-repeated"},
		"newer":                 {[]string{other(started, `}`, `,"protocolVersion":"1.2"}`), finished}, "1 protocol-version"},
		"of another form":       {[]string{other(started, `}`, `,"protocolVersion":"draft"}`), finished}, "1 protocol-version"},
		"this one and an older": {[]string{other(started, `}`, `,"protocolVersion":"1.1"}`), finished, other(started, `}`, `,"protocolVersion":"1.0"}`), finished}, ""},
	} {
		got, tally := said(t, "", events(c.stream...))
		if strings.Join(got, ",") != c.want || (tally.Stops != nil) != strings.Contains(c.want, "first-event") {
			t.Errorf("%s: found %q, want %q; the client stops at %+v", name, got, c.want, tally.Stops)
		}
	}
}

// AG-UI 1.1 has a member that the client of 1.0 removes.
func TestLinter_AcceptsTheTypeOfAnEncryptedValue(t *testing.T) {
	snapshot := func(m string) string { return `{"type":"MESSAGES_SNAPSHOT","messages":[` + m + `]}` }
	value := `{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"v"`
	for event, want := range map[string]string{
		value + `,"encryptedValueType":"a.b"}`: "",
		value + `,"encryptedValueType":1}`:     "3 schema",
		snapshot(`{"id":"m","role":"user","content":"","encryptedValue":"v","encryptedValueType":"a.b"}`):                                                    "",
		snapshot(`{"id":"m","role":"user","content":"","encryptedValueType":"a.b"}`):                                                                         "3 encrypted-type-alone",
		snapshot(`{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""},"encryptedValueType":"a"}]}`): "3 encrypted-type-alone",
		snapshot(`{"id":"m","role":"activity","activityType":"a","content":{},"encryptedValueType":"a.b"}`):                                                  "3 member-stripped",
	} {
		got, _ := said(t, "", events(started, snapshot(`{"id":"m","role":"user","content":""}`), event, finished))
		if strings.Join(got, ",") != want {
			t.Errorf("%s: found %q, want %q", event, got, want)
		}
	}
}

// The rules of the fold all have their text.
func TestRules_AreThoseOfTheFold(t *testing.T) {
	for _, name := range slices.Concat(compact.VerificationRules(), compact.ReducerRules()) {
		r, ok := lint.RuleNamed(name)
		if want := map[bool]lint.Level{true: lint.Error, false: lint.Warning}[slices.Contains(compact.VerificationRules(), name)]; !ok ||
			r.Level != want {
			t.Errorf("%s is %+v, want one of level %s", name, r, want)
		}
	}
	seen := map[string]bool{}
	for _, r := range lint.Rules() {
		if seen[r.Name] || !strings.HasSuffix(r.Means, ".") || !strings.HasSuffix(r.Do, ".") {
			t.Errorf("%s stands twice, or is not told: %+v", r.Name, r)
		}
		seen[r.Name] = true
	}
}

func FuzzLinter(f *testing.F) {
	f.Add([]byte("data: " + started + "\n\ndata: " + finished + "\n\n"))
	f.Add([]byte("data: {\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"binary\",\"mimeType\":\"m\",\"data\":\"d\"}]}]}\r\n\r\ndata: [DONE]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		l := lint.New("f", nil, func(found lint.Finding) {
			if _, ok := lint.RuleNamed(found.Rule); !ok {
				t.Errorf("there is no rule %s", found.Rule)
			}
		})
		if err := l.ReadSSE(strings.NewReader(string(body)), 1); err != nil {
			t.Fatal(err)
		}
		l.End()
	})
}
