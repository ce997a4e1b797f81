package docs

import (
	"fmt"
	"regexp"
	"strings"
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

	"docs/search.md: bin/skein runs --agent assistant --since 24h": "once\trun-1\t2026-11-26T03:43:17Z\tfinished\t0s\tassistant\t-\n" +
		"weather\trun-1\t2026-11-26T03:43:15Z\tfinished\t0s\tassistant\t-\n" +
		"hello\thello-1\t2026-11-26T03:43:09Z\tfinished\t0s\tassistant\t-\n" +
		"finished\t3\t0\t3\n",

	"docs/stepping.md: bin/skein blame hello /city": "1:35  2026-11-26T03:43:16Z  run hello-1, step 11: STATE_DELTA\n  + \"Zürich\"\n" +
		"1:2  2026-11-26T03:43:09Z  run hello-1, step 2: TEXT_MESSAGE_START\n  + assistant:\n" +
		"1:3  2026-11-26T03:43:09Z  run hello-1, step 3: TEXT_MESSAGE_CONTENT (2 events)\n  … Let me look.\n" +
		"1:6  2026-11-26T03:43:09Z  run hello-1, step 6: TOOL_CALL_START\n  … → weather()\n" +
		"1:7  2026-11-26T03:43:09Z  run hello-1, step 7: TOOL_CALL_ARGS (2 events)\n  … {\"city\":\"Zürich\"}\n",
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

var (
	elided  = regexp.MustCompile(`(?m)^…\n|…`)
	lineEnd = regexp.MustCompile(`(?m)[ \t]+$`)
)

// differs says how what a block printed differs from what its document says, or nil. Times, durations, hashes, positions and ids that Skein
// makes may be others. A … stands for any part of a line, or for any lines where it is a line of its own. An output that is nothing but …
// would say nothing, so it is an error.
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
