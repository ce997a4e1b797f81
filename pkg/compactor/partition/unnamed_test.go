package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// without returns an input's messages as a client sends that has no ids: each is ROLE:TEXT, CALL or a message as JSON.
func without(words ...string) string {
	var list []string
	for _, w := range words {
		role, text, _ := strings.Cut(w, ":")
		switch {
		case w[0] == '{':
			list = append(list, w)
		case role == "call":
			list = append(list, fmt.Sprintf(`{"role":"assistant","toolCalls":[{"id":%q,"type":"function","function":{"name":"f","arguments":"{ }"}}]}`, text))
		case role == "result":
			list = append(list, fmt.Sprintf(`{"role":"tool","toolCallId":%q,"content":"done"}`, text))
		default:
			list = append(list, fmt.Sprintf(`{"role":%q,"content":%q}`, role, text))
		}
	}
	return "[" + strings.Join(list, ",") + "]"
}

// turnOf sends a separate input of these messages and a run that answers them.
func (s *sim) turnOf(run, messages string) {
	s.tb.Helper()
	s.Input("t", run, fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":%s,"tools":[],"context":[]}`, run, messages))
	s.Send("t", run, started(run))
	s.Send("t", run, text("a-"+run, "answer "+run))
	s.Send("t", run, finished(run))
}

// The .NET SDK sends its users' messages, and those that an application restores, without ids.
func TestUnnamed_MessagesAreComparedByRoleAndContent(t *testing.T) {
	first := func(s *sim) { s.turnOf("r1", without("user:hi")) }
	second := func(s *sim) {
		first(s)
		s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
	}
	const one, two = "message-r1~1=hi a-r1", "message-r1~1=hi a-r1 message-r2~3=more a-r2"
	for name, c := range map[string]struct {
		send func(*sim)
		want map[string]string
	}{
		"the whole conversation again": {func(s *sim) {
			second(s)
			s.turnOf("r3", without("user:hi", "assistant:answer r1", "user:more", "assistant:answer r2", "user:hi"))
		}, map[string]string{"r2": two + "; content r1", "r3": two + " message-r3~5=hi a-r3; content r2"}},
		"a single known id, and other words": {func(s *sim) {
			first(s)
			s.turnOf("r1b", without("user:hi"))
			s.turnOf("r2", without("user:hi", `{"id":"a-r1","role":"assistant","content":"answer, trimmed"}`, "user:more"))
		}, map[string]string{"r1b": "message-r1b~1=hi a-r1b; none", "r2": two + "; content r1"}},
		"empty ids": {func(s *sim) {
			named := func(words ...string) string {
				return strings.ReplaceAll(without(words...), `{"role"`, `{"id":"","role"`)
			}
			s.turnOf("r1", named("user:hi"))
			s.turnOf("r1b", named("user:hi"))
			s.turnOf("r2", named("user:hi", "assistant:answer r1", "user:more"))
			s.turnOf("r3", named("user:hi", `{"id":"a-r1","role":"assistant","content":"answer r1"}`, "user:more", "assistant:answer r2", "user:last"))
		}, map[string]string{"r2": "=hi a-r1 =more a-r2; content r1", "r3": "=hi a-r1 =more a-r2 =last a-r3; content r2"}},
		"parts in place of a string, and no content": {func(s *sim) {
			s.Input("t", "r1", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1", started("r1"))
			s.Send("t", "r1", `{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"f"}`)
			s.Send("t", "r1", `{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{}"}`)
			s.Send("t", "r1", finished("r1"))
			s.turnOf("r2", without(`{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}`,
				`{"role":"assistant","content":"","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{ }"}}]}`, "result:c1"))
		}, map[string]string{"r2": "message-r1~1=[map[text:h type:text] map[text:i type:text]] c1 message-r2~3=done a-r2; content r1"}},
		"an image": {func(s *sim) {
			image := `{"role":"user","content":[{"type":"image", "source":{"type":"url","value":"u"}},{"type":"text","text":"what is it?"}]}`
			s.turnOf("r1", without(image))
			s.turnOf("other", without(strings.Replace(image, `"u"`, `"v"`, 1)))
			s.turnOf("r2", without(image, "assistant:answer r1", "user:more"))
		}, map[string]string{"r2": "message-r1~1=[map[source:map[type:url value:u] type:image] map[text:what is it? type:text]] a-r1 " +
			"message-r2~3=more a-r2; content r1"}},
		"calls of one turn in one message": {func(s *sim) {
			s.Input("t", "r1", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1", started("r1"))
			for _, id := range []string{"c1", "c2"} {
				s.Send("t", "r1", `{"type":"TOOL_CALL_START","toolCallId":"`+id+`","toolCallName":"f"}`)
			}
			s.Send("t", "r1", finished("r1"))
			s.turnOf("r2", without("user:hi", `{"role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":""}},`+
				`{"id":"c2","type":"function","function":{"name":"f","arguments":""}}]}`, "result:c1", "result:c2"))
		}, map[string]string{"r2": "message-r1~1=hi message-r2~2=<nil> message-r2~3=done message-r2~4=done a-r2; content r1"}},
		"instructions that come, change and go": {func(s *sim) {
			s.turnOf("r1", without("system:be kind", "user:hi"))
			s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
			s.turnOf("r3", without("developer:be short", "user:hi", "assistant:answer r1", "user:more", "assistant:answer r2", "user:last"))
		}, map[string]string{"r2": "message-r1~2=hi a-r1 message-r2~3=more a-r2; content r1",
			"r3": "message-r3~1=be short message-r1~2=hi a-r1 message-r2~3=more a-r2 message-r3~6=last a-r3; content r2"}},
		"reasoning": {func(s *sim) {
			s.Input("t", "r1", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1", started("r1"))
			s.Send("t", "r1", `{"type":"REASONING_MESSAGE_CHUNK","messageId":"t1","delta":"hm"}`)
			s.Send("t", "r1", text("a-r1", "answer r1"))
			s.Send("t", "r1", finished("r1"))
			s.turnOf("r2", without("user:hi", "reasoning:hm", "assistant:answer r1", "user:more"))
			s.turnOf("r3", without("user:hi", "assistant:answer r1", "user:more", "assistant:answer r2"))
		}, map[string]string{"r2": "message-r1~1=hi t1 a-r1 message-r2~4=more a-r2; content r1",
			"r3": "message-r1~1=hi a-r1 message-r2~4=more a-r2 a-r3; content r2"}},
		"activities stay": {func(s *sim) {
			s.Input("t", "r1", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1", started("r1"))
			s.Send("t", "r1", `{"type":"ACTIVITY_SNAPSHOT","messageId":"plan","activityType":"plan","content":{}}`)
			s.Send("t", "r1", text("a-r1", "answer r1"))
			s.Send("t", "r1", finished("r1"))
			s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
		}, map[string]string{"r2": "message-r1~1=hi plan a-r1 message-r2~3=more a-r2; content r1"}},
		"an agent that names everything anew in a snapshot": {func(s *sim) {
			s.Input("t", "r1", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1", started("r1"))
			s.Send("t", "r1", `{"type":"MESSAGES_SNAPSHOT","messages":[`+userMessage("n1", "hi")+`,`+assistantMessage("n2", "answer r1")+`]}`)
			s.Send("t", "r1", finished("r1"))
			s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
		}, map[string]string{"r2": "n1 n2 message-r2~3=more a-r2; content r1"}},
		"the last question edited, and asked again": {func(s *sim) {
			second(s)
			s.turnOf("edit", without("user:hi", "assistant:answer r1", "user:edited"))
			s.turnOf("again", without("user:hi", "assistant:answer r1", "user:more"))
		}, map[string]string{"edit": one + " message-edit~3=edited a-edit; content r1",
			"again": one + " message-again~3=more a-again; content r1"}},
		"equal conversations: the latest": {func(s *sim) {
			first(s)
			s.Input("t", "r1b", `{"messages":`+without("user:hi")+`}`)
			s.Send("t", "r1b", started("r1b"))
			s.Send("t", "r1b", text("b", "answer r1"))
			s.Send("t", "r1b", finished("r1b"))
			s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
		}, map[string]string{"r2": "message-r1b~1=hi b message-r2~3=more a-r2; content r1b"}},
		"a conversation cut at its front begins a line": {func(s *sim) {
			second(s)
			s.turnOf("r3", without("user:more", "assistant:answer r2", "user:last"))
		}, map[string]string{"r3": "message-r3~1=more message-r3~2=answer r2 message-r3~3=last a-r3; none"}},
		"a named parent": {func(s *sim) {
			second(s)
			s.Input("t", "r3", `{"parentRunId":"r2","messages":`+without("user:more", "assistant:answer r2", "user:last")+`}`)
			s.answer("r3", started("r3"))
		}, map[string]string{"r3": "message-r2~3=more a-r2 message-r3~3=last a-r3; explicit r2"}},
		"ids in one turn, none in the next": {func(s *sim) {
			s.turnOf("r1", "["+userMessage("u1", "hi")+"]")
			s.turnOf("r2", without("user:hi", "assistant:answer r1", "user:more"))
			s.turnOf("r3", "["+userMessage("u1", "hi")+","+assistantMessage("a-r1", "answer r1")+","+userMessage("u3", "else")+"]")
		}, map[string]string{"r2": "u1 a-r1 message-r2~3=more a-r2; content r1", "r3": "u1 a-r1 u3 a-r3; content r1"}},
		"on RUN_STARTED, whole": {func(s *sim) {
			s.answer("r1", startedWith("r1", "", without("user:hi")))
			s.answer("r2", startedWith("r2", "", without("user:hi", "assistant:answer", "user:more")))
			s.answer("r3", startedWith("r3", "r1", without("user:hi", "assistant:answer", "user:else")))
			s.answer("r4", startedWith("r4", "", without("user:else", "assistant:answer", "user:cut")))
		}, map[string]string{"r2": "message-r1~1=hi a-r1 message-r2~3=more a-r2; content r1",
			"r3": "message-r1~1=hi a-r1 message-r3~3=else a-r3; explicit r1",
			"r4": "message-r4~1=else message-r4~2=answer message-r4~3=cut a-r4; none"}},
		"sent beside the stream, and on RUN_STARTED": {func(s *sim) {
			first(s)
			again := without("user:hi", "assistant:answer r1", "user:more")
			s.Input("t", "r2", `{"messages":`+again+`}`)
			s.answer("r2", startedWith("r2", "", again))
		}, map[string]string{"r2": "message-r1~1=hi a-r1 message-r2~3=more a-r2; content r1"}},
		"on RUN_STARTED, what is new": {func(s *sim) {
			s.answer("r1", startedWith("r1", "", without("user:hi")))
			s.answer("r2", startedWith("r2", "", without("user:hi")))
			s.answer("r3", startedWith("r3", "r1", without("user:more")))
		}, map[string]string{"r2": "message-r1~1=hi a-r1 message-r2~1=hi a-r2; latest r1 normalised",
			"r3": "message-r1~1=hi a-r1 message-r3~1=more a-r3; explicit r1 normalised"}},
		"a resume with the question alone": {func(s *sim) {
			s.answerWith("r1", startedWith("r1", "", without("user:hi")), interruptedBy("r1", "i1"))
			s.answer("r2", `{"type":"RUN_STARTED","threadId":"t","runId":"r2","input":{"resume":[{"interruptId":"i1","status":"resolved"}],"messages":`+
				without("user:hi")+`}}`)
		}, map[string]string{"r2": "message-r1~1=hi a-r2; content r1"}},
	} {
		t.Run(name, func(t *testing.T) { checkThread(t, c.send, c.want) })
	}
}

// answerWith is answer with the event that ends the run.
func (s *sim) answerWith(run, started, end string) {
	s.tb.Helper()
	s.Send("t", run, started)
	s.Send("t", run, text("a-"+run, "answer"))
	s.Send("t", run, end)
}

func interruptedBy(run, id string) string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q,"outcome":{"type":"interrupt","interrupts":[{"id":%q,"reason":"x"}]}}`, run, id)
}

// A run of a long thread stores what it adds, and says that it changed nothing.
func TestUnnamed_ARunStoresWhatItAdds(t *testing.T) {
	s := newSim(t, nil)
	conversation := []string{"user:hi"}
	for i := range 50 {
		run := fmt.Sprint("r", i)
		s.turnOf(run, without(conversation...))
		conversation = append(conversation, "assistant:answer "+run, "user:and then?")
	}
	s.all()
	r := s.run("r49")
	if r.ParentRunID != "r48" || r.ParentBy != record.ParentContent || r.Base != "r48" || r.Depth != 49 {
		t.Errorf("%+v on %q", r.Lineage, r.Base)
	}
	equal(t, "own messages", len(r.Messages), 2)
	equal(t, "messages", r.MessageCount, 100)
	equal(t, "rewrites", len(r.Rewrote), 0)
}

func TestUnnamed_ThousandRunsCostNoMoreThanOne(t *testing.T) {
	at := func(runs int) time.Duration {
		s := newSim(t, nil)
		for i := range runs {
			s.turnOf(fmt.Sprint("r", i), without("user:hi", "assistant:hello", "user:same question"))
		}
		s.all()
		begun := time.Now()
		for i := range 20 {
			s.turnOf(fmt.Sprint("n", i), without("user:hi", "assistant:hello", "user:same question", "assistant:answer r0", "user:next"))
		}
		s.all()
		return time.Since(begun) / 20
	}
	few, many := at(1), at(1000)
	t.Logf("a run takes %v in a thread of 20, %v in one of 1,000", few, many)
	if many > 10*few+5*time.Millisecond {
		t.Errorf("a run takes %v in a thread of 1,000 runs, %v in one of 20", many, few)
	}
}
