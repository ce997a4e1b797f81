package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
)

// tailMessages limits how many existing messages a tail shows.
const tailMessages = 4

func newTail(out *output) *cobra.Command {
	var asEvents bool
	cmd := &cobra.Command{
		Use:     "tail THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Follow a thread live, as a chat or event by event",
		Long: `Follow a thread live, over one run after another. With RUN it follows that run, to its end. It waits for a
thread or run that does not exist yet. If the server goes away, or ends the stream, it resumes after the last
event: none is missing and none comes twice. If the server waits, for example because Kafka does not answer, a note on
standard error says so. Ctrl-C ends it.

It shows a chat: the last messages so far, then text as it is written, tool calls, and how runs end. With
--events it prints AG-UI events, one per line: first RUN_STARTED and snapshots of the run so far, then each
event byte for byte. -o jsonl adds the position of each event; the first ones, which describe the run so far,
have none. skein history THREAD --follow shows the whole conversation first.`,
		Example: `  skein tail my-thread
  skein tail my-thread my-run --events | jq -r .type
  skein tail my-thread -o jsonl`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		chat := newChat(out, tailMessages)
		show := chat.event
		switch {
		case asEvents && out.asJSON:
			return app.Usagef("--events and -o jsonl exclude each other")
		case asEvents:
			show = func(e client.LiveEvent) error { return out.document(e.Data) }
		case out.asJSON:
			show = func(e client.LiveEvent) error { return out.json(liveLine{e.Position, e.Data}) }
		}
		return follow(ctx, out, c, args, show, chat.end)
	})
	cmd.Flags().BoolVar(&asEvents, "events", false, "print AG-UI events, one per line, instead of a chat")
	jsonLinesFlags(cmd, out)
	return cmd
}

// liveLine is a line of skein tail --json.
type liveLine struct {
	Position string          `json:"position,omitempty"`
	Event    json.RawMessage `json:"event"`
}

// waitingAfter is how long a tail waits for the first event before it prints a note.
const waitingAfter = 2 * time.Second

// follow calls show with the events of a thread or run as they come, until Ctrl-C. Before a note it calls pause, which ends
// the current line of the chat.
func follow(
	ctx context.Context, out *output, c *client.Client, args []string, show func(client.LiveEvent) error, pause func() error,
) error {
	_, run := runPath(args)
	what := "thread " + oneLine(args[0], 80)
	if run != "" {
		what = "run " + oneLine(run, 80)
	}
	waiting := time.AfterFunc(waitingAfter, func() { out.note("waiting for %s", what) })
	defer waiting.Stop()
	c = c.Noting(func(text string) {
		if pause() == nil { // if pause fails, so does the next event
			out.note("%s", oneLine(text, 300))
		}
	})
	for e, err := range c.Stream(ctx, args[0], run) {
		waiting.Stop()
		if err == nil {
			err = show(e)
		}
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return errors.Join(err, pause())
		}
	}
	return pause()
}

// chat shows live events as a conversation.
type chat struct {
	out *output
	// most limits how many messages of the first snapshot are shown; 0 means all.
	most  int
	shown map[string]bool // ids of messages
	begun map[string]bool // ids of messages and tool calls that are on the screen, at least in part
	names toolNames
	// open is the id of the last message or tool call; inside means that its line is unfinished.
	open   string
	inside bool
	joined bool
}

func newChat(out *output, most int) *chat {
	return &chat{out: out, most: most, shown: map[string]bool{}, begun: map[string]bool{}, names: toolNames{}}
}

// event shows one event.
func (c *chat) event(live client.LiveEvent) error {
	var e struct {
		Type                                   agui.Type
		RunID, Message                         string
		MessageID, Role, Name, Delta           string
		ToolCallID, ToolCallName, ActivityType string
		Content, Outcome                       json.RawMessage
		Messages                               []message
	}
	// A member of another type leaves its field empty.
	if err := json.Unmarshal(live.Data, &e); err != nil && e.Type == "" {
		return fmt.Errorf("reading live event: %w", err)
	}
	switch e.Type {
	case agui.RunStarted:
		return c.line(styleFaint, "── run "+oneLine(e.RunID, 80)+" ──")
	case agui.RunFinished:
		text := "── finished ──"
		if bytes.Contains(e.Outcome, []byte(`"interrupt"`)) { // Outcome is a string in older versions of AG-UI, and an object now
			text = "── interrupted: it waits for an answer ──"
		}
		return c.line(styleFaint, text)
	case agui.RunError:
		return c.line(styleGone, "── error: "+oneLine(e.Message, 500)+" ──")
	case agui.MessagesSnapshot:
		return c.snapshot(e.Messages)
	case agui.TextMessageStart, agui.TextMessageContent, agui.TextMessageChunk:
		role := e.Role
		if role == "" {
			role = "assistant"
		}
		return c.write(e.MessageID, c.names.who(message{Role: role, Name: e.Name}), e.Delta)
	case agui.ReasoningMessageStart, agui.ReasoningMessageContent, agui.ReasoningMessageChunk:
		return c.write(e.MessageID, "reasoning", e.Delta)
	case agui.ToolCallStart, agui.ToolCallArgs, agui.ToolCallChunk:
		if e.ToolCallName != "" {
			c.names[e.ToolCallID] = e.ToolCallName
		}
		return c.write(e.ToolCallID, "→ "+c.names[e.ToolCallID], e.Delta)
	case agui.ToolCallResult:
		return c.message(message{ID: e.MessageID, Role: "tool", ToolCallID: e.ToolCallID, Content: e.Content})
	case agui.ActivitySnapshot:
		return c.message(message{ID: e.MessageID, Role: "activity", ActivityType: e.ActivityType, Content: e.Content})
	case agui.TextMessageEnd, agui.ReasoningMessageEnd, agui.ToolCallEnd:
		return c.end()
	}
	return nil
}

// snapshot shows the messages that are not on the screen yet.
func (c *chat) snapshot(messages []message) error {
	left := 0
	if !c.joined && c.most > 0 {
		left = max(0, len(messages)-c.most)
	}
	c.joined = true
	if left > 0 {
		if err := c.line(styleFaint, fmt.Sprintf("… %s before", count(left, "message"))); err != nil {
			return err
		}
	}
	for i, m := range messages {
		who := c.names.who(m) // needed also for messages that are not shown, since they name tools
		if c.shown[m.ID] {
			continue
		}
		c.shown[m.ID] = true
		if i < left {
			continue
		}
		if err := c.whole(who, m); err != nil {
			return err
		}
	}
	return nil
}

// message shows a complete message.
func (c *chat) message(m message) error {
	c.shown[m.ID] = true
	if err := c.whole(c.names.who(m), m); err != nil {
		return err
	}
	return c.end()
}

// whole shows a message and leaves its line open, since the last message of a snapshot may continue.
func (c *chat) whole(who string, m message) error {
	text := contentText(m.Content)
	if text != "" || len(m.ToolCalls) == 0 {
		if err := c.begin(m.ID, who, text); err != nil {
			return err
		}
	}
	for _, call := range m.ToolCalls {
		if err := c.begin(call.ID, "→ "+call.Function.Name, call.Function.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a message or tool call.
func (c *chat) begin(id, who, text string) error {
	if err := c.end(); err != nil {
		return err
	}
	mark := ""
	if c.begun[id] { // the message or tool call continues
		mark = " …"
	}
	c.open, c.inside, c.begun[id] = id, true, true
	return c.out.text(c.out.bold(oneLine(who, c.out.width())) + mark + "\n  " + indented(printable(text)))
}

// write appends to a message or tool call. It begins the message or call first if that is not open.
func (c *chat) write(id, who, text string) error {
	if id == "" { // a chunk of the open message
		id = c.open
	}
	c.shown[id] = true
	if id != c.open || !c.inside {
		return c.begin(id, who, text)
	}
	return c.out.text(indented(printable(text)))
}

// indented adds the margin after each line break.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// end ends the open line.
func (c *chat) end() error {
	if !c.inside {
		return nil
	}
	c.inside = false
	return c.out.text("\n")
}

// line ends the open line and writes another one.
func (c *chat) line(style, text string) error {
	if err := c.end(); err != nil {
		return err
	}
	return c.out.text(c.out.paint(style, text) + "\n")
}
