package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// varying are values that differ from one run of a block to the next. They are masked in what is documented and in what was printed.
var varying = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA256"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "NEW-ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ms|µs|s)\b`), "DURATION"},
	{regexp.MustCompile(`("(?:timestamp|durationMs|timeToFirstTokenMs)":)\d+`), "${1}NUMBER"},
	{regexp.MustCompile(`("(?:partition|offset|firstOffset|lastOffset)":)\d+`), "${1}NUMBER"},
	{regexp.MustCompile(`(^|[^.\d])\d+:\d+\b`), "${1}POSITION"},
}

// unshown is what blocks print whose documents do not show it, since it says nothing to a reader or is long: by file and first line.
var unshown = map[string]string{
	"README.md: curl -sSN http://127.0.0.1:8420/v1/agents/assistant -H 'Content-Type: application/json' --data-binary @examples/hello.input.json": `data: {"type":"RUN_STARTED","threadId":"hello","runId":"hello-1"}
id: seq:0

…
data: {"type":"RUN_FINISHED","threadId":"hello","runId":"hello-1"}
id: seq:14
`,
	"docs/connect.md: curl -fsS 'http://127.0.0.1:8420/v1/threads/my-thread/diff?to=run-1'": `{"threadId":"my-thread","to":{"runId":"run-1",…},"same":false,"onlyFrom":[],"onlyTo":[{"id":"u1",…},{"id":"a1",…}],"changed":[],"statePatch":[],…}
{"threadId":"my-thread","position":"1:23","href":"/v1/erasures/1:23"}`,

	"docs/connect.md: curl -sSN http://127.0.0.1:8420/v1/agents/assistant -H 'Content-Type: application/json' \\": `data: {"type":"RUN_STARTED","threadId":"weather","runId":"run-1"}
id: seq:0

…
data: {"type":"RUN_FINISHED","threadId":"weather","runId":"run-1"}
id: seq:14
`,
	"docs/connect.md: curl -sSN http://127.0.0.1:8420/v1/threads/hello/runs/hello-1/stream   # without /runs/hello-1 it goes on with the next run": `retry: 1000
id: join

data: {"type":"RUN_STARTED","threadId":"hello","runId":"hello-1"}

data: {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1",…},…]}

data: {"type":"STATE_SNAPSHOT","snapshot":{"city":"Zürich"}}

id: 1:15
data: {"type":"RUN_FINISHED","threadId":"hello","runId":"hello-1"}
`,
	"docs/connect.md: bin/skein context set local --url http://127.0.0.1:8420": "*\tlocal\thttp://127.0.0.1:8420",

	"docs/producing.md: go run ./examples/producers/go 127.0.0.1:8492 skein.events examples/producers/runs.jsonl": "",

	"docs/search.md: bin/skein runs --agent assistant --since 24h": "once\trun-1\t2026-11-26T03:43:17Z\tfinished\t0s\tassistant\t0\n" +
		"weather\trun-1\t2026-11-26T03:43:15Z\tfinished\t0s\tassistant\t0\n" +
		"hello\thello-1\t2026-11-26T03:43:09Z\tfinished\t0s\tassistant\t0\n" +
		"finished\t3\t0\t3\n",

	"docs/stepping.md: bin/skein blame hello /city": "1:35\t2026-11-26T03:43:16Z\thello-1\t11\tSTATE_DELTA\t+ \"Zürich\"\n" +
		"1:2\t2026-11-26T03:43:09Z\thello-1\t2\tTEXT_MESSAGE_START\t+ assistant:\n" +
		"1:3\t2026-11-26T03:43:09Z\thello-1\t3\tTEXT_MESSAGE_CONTENT\tLet me look. (2 events)\n" +
		"1:6\t2026-11-26T03:43:09Z\thello-1\t6\tTOOL_CALL_START\t… → weather()\n" +
		"1:7\t2026-11-26T03:43:09Z\thello-1\t7\tTOOL_CALL_ARGS\t{\"city\":\"Zürich\"} (2 events)\n",
	`docs/stepping.md: bin/skein replay hello hello-1 --until 'event.type == "TOOL_CALL_START" && event.toolCallName == "weather"'`: `{"type":"RUN_STARTED","threadId":"hello","runId":"hello-1"}
…
{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"weather","parentMessageId":"a1"}
stopped at 1:6, event 6 of the run: event.type == "TOOL_CALL_START" && event.toolCallName == "weather"
{"position":"1:1",…,"event":{"type":"RUN_STARTED","threadId":"hello","runId":"hello-1"}}
…
{"position":"1:11",…,"event":{"type":"STATE_DELTA","delta":[{"op":"add","path":"/city","value":"Zürich"}]}}
stopped at 1:11, event 11 of the run: state.city == "Zürich"
{"type":"RUN_STARTED","threadId":"hello","runId":"hello-1"}
…
{"type":"TOOL_CALL_RESULT","messageId":"t1","toolCallId":"c1","content":"{\"celsius\":12}","role":"tool"}
stopped at 1:10, event 10 of the run: messages.exists(m, m.role == "tool" && m.content.contains("celsius"))
`,
}

// shown is what a document says that a block prints: a block of text or JSON right behind it.
var shown = regexp.MustCompile("(?s)^\n+```(?:text|json)\n(.*?)```\n")

// expected returns what a block of a file prints, or false where nothing says it.
func expected(file string, text []byte, block, script string) (output string, ok bool) {
	_, rest, _ := strings.Cut(string(text), block)
	if found := shown.FindStringSubmatch(rest); found != nil {
		return found[1], true
	}
	output, ok = unshown[blockName(file, script)]
	return output, ok
}

// blockName names a block by its file and first line.
func blockName(file, script string) string {
	line, _, _ := strings.Cut(script, "\n")
	return file + ": " + line
}

// Nothing is expected of a block that is not there, and each block of the first hour says what it prints.
func TestOutput_OfEachBlockOfTheFirstHourIsCompared(t *testing.T) {
	names := map[string]bool{}
	for _, file := range newcomers {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			if makeCall.MatchString(found[1]) {
				continue
			}
			name := blockName(file, found[1])
			if names[name] {
				t.Errorf("two blocks begin in the same way: %s", name)
			}
			names[name] = true
			if _, ok := expected(file, text, found[0], found[1]); !ok {
				t.Errorf("%s: show what it prints in a block of text behind it, or add it to unshown", name)
			}
		}
	}
	for name := range unshown {
		if !names[name] {
			t.Errorf("unshown has %q, which is no block of the first hour", name)
		}
	}
}

var (
	elided  = regexp.MustCompile(`(?m)^…\n|…`)
	lineEnd = regexp.MustCompile(`(?m)[ \t]+$`)
)

// differs says how what a block printed differs from what its document says, or nil. Times, durations, hashes, positions and ids that Skein makes may be others. A … stands for
// any part of a line, or for any lines where it is a line of its own. An output that is nothing but … would say nothing, so it is an error.
func differs(printed, documented string) error {
	if documented != "" && strings.Trim(documented, "… \n") == "" {
		return fmt.Errorf("the documented output %q says nothing", documented)
	}
	printed, documented = normal(printed), normal(documented)
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	at := 0
	for _, gap := range elided.FindAllStringIndex(documented, -1) {
		pattern.WriteString(regexp.QuoteMeta(documented[at:gap[0]]))
		if at = gap[1]; documented[gap[0]:gap[1]] == "…" {
			pattern.WriteString(`.*`)
		} else {
			pattern.WriteString(`(?:.*\n)*`)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(documented[at:]) + `\z`)
	whole, err := regexp.Compile(pattern.String())
	if err != nil {
		return err
	}
	if !whole.MatchString(printed) {
		return fmt.Errorf("printed\n%s\nand not, as documented,\n%s", printed, documented)
	}
	return nil
}

// normal masks a text, and leaves out white space that nobody sees.
func normal(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.mask)
	}
	if text = strings.TrimRight(lineEnd.ReplaceAllString(text, ""), "\n"); text == "" {
		return ""
	}
	return text + "\n"
}

func TestOutput_DiffersWhereAReaderWouldSee(t *testing.T) {
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for name, c := range map[string]struct {
		printed, documented string
		same                bool
	}{
		"the same":                    {"a\nb\n", "a\nb\n", true},
		"without a last line feed":    {"a", "a\n", true},
		"spaces at the end":           {"a\t\n", "a\n", true},
		"nothing":                     {"", "", true},
		"something for nothing":       {"a\n", "", false},
		"nothing for something":       {"", "a\n", false},
		"another word":                {"run r: error\n", "run r: finished\n", false},
		"another case":                {"A\n", "a\n", false},
		"a line more":                 {"a\nb\n", "a\n", false},
		"a line less":                 {"a\n", "a\nb\n", false},
		"lines in another order":      {"b\na\n", "a\nb\n", false},
		"spaces at the start":         {"  a\n", "a\n", false},
		"another time":                {"at 2026-09-17T12:00:00Z\n", "at 2025-01-02T03:04:05.678Z\n", true},
		"no time":                     {"at noon\n", "at 2025-01-02T03:04:05Z\n", false},
		"another hash":                {"sha256 " + hash + "\n", "sha256 " + strings.Repeat("0", 64) + "\n", true},
		"another new id":              {`"runId":"YQW2VHSIADSPGZPCETS44PSN3R"`, `"runId":"IWNVOTC33WLSBEYYHKTRQDGQ5U"`, true},
		"another id":                  {`"runId":"run-2"`, `"runId":"run-1"`, false},
		"half a hash":                 {"sha256 " + hash[:32] + "\n", "sha256 " + hash + "\n", false},
		"another position":            {"at 3:17 to 3:31\n", "at 11:1 to 11:15\n", true},
		"a position less":             {"at 3:17\n", "at 3:17 to 3:31\n", false},
		"another port":                {"http://127.0.0.1:8421/\n", "http://127.0.0.1:8420/\n", false},
		"another duration":            {"it took 12 ms\n", "it took 1.5 s\n", true},
		"another number":              {"15 events\n", "14 events\n", false},
		"other offsets":               {`{"accepted":6,"partition":2,"firstOffset":1,"lastOffset":6}`, `{"accepted":6,"partition":3,"firstOffset":9,"lastOffset":14}`, true},
		"another number of offsets":   {`{"accepted":5,"partition":2,"firstOffset":1,"lastOffset":6}`, `{"accepted":6,"partition":2,"firstOffset":1,"lastOffset":6}`, false},
		"a part that is left out":     {`{"a":1,"b":2,"c":3}`, `{"a":1,…,"c":3}`, true},
		"behind the part left out":    {`{"a":1,"b":2,"c":3}`, `{"a":1,…,"c":4}`, false},
		"before the part left out":    {`{"a":2,"b":2,"c":3}`, `{"a":1,…,"c":3}`, false},
		"a part over two lines":       {"{a\nb}", "{…}", false},
		"lines that are left out":     {"a\nb\nc\nd\n", "a\n…\nd\n", true},
		"behind the lines left out":   {"a\nb\nc\nd\n", "a\n…\nc\n", false},
		"no lines where some may be":  {"a\nd\n", "a\n…\nd\n", true},
		"signs of regular expression": {"a+b\n", "a.b\n", false},
		"all left out":                {"a\nb\n", "…\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := differs(c.printed, c.documented); (err == nil) != c.same {
				t.Errorf("%q against %q: %v", c.printed, c.documented, err)
			}
		})
	}
}
