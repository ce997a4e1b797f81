package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

func newBlame(out *output) *cobra.Command {
	var run, messageID string
	cmd := &cobra.Command{
		Use:     "blame THREAD [PATH]",
		GroupID: groupRead,
		Short:   "Show which events changed a place in the state, or a message",
		Long: `Show which events changed a place in the state, or a message, along the chain of runs from the root to a run: the position
of each event, its time, and what it changed. PATH is a JSON Pointer such as /cart/total; by default it is the whole state. Without
--run, the chain ends at the tip of the thread with the latest start.

If the raw events of a run are gone, the output shows what the whole run changed, without the event.`,
		Example: `  skein blame my-thread /cart/total
  skein blame my-thread --message msg-7 --run run-2
  skein blame my-thread /cart/total --json | jq -r '[.position, .type] | @tsv'`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		path, q := client.ThreadPath(args[0]), url.Values{}
		if run != "" {
			path = client.RunPath(args[0], run)
		}
		if len(args) == 2 {
			q.Set("path", args[1])
		}
		if set(q, "message", messageID); messageID != "" && len(args) == 2 {
			return app.Usagef("give either PATH, a place in the state, or --message, a message")
		}
		b := blamed{out: out}
		for {
			var page changesPage
			if _, err := c.Fetch(ctx, path+"/changes", q, &page); err != nil {
				return out.found(err, args[0], run)
			}
			if err := b.page(page); err != nil {
				return err
			}
			if page.Next == "" {
				return b.done()
			}
			q.Set("from", page.Next)
		}
	})
	jsonLinesFlags(cmd, out)
	cmd.Flags().StringVar(&run, "run", "", "`RUN` at the end of the chain")
	cmd.Flags().StringVar(&messageID, "message", "", "`ID` of a message, instead of a place in the state")
	return cmd
}

// blamed prints the changes of a place in the state, or of a message.
type blamed struct {
	out       *output
	isMessage bool
	// last is the change to print next; nil before the first change. events is how many events it stands for, since consecutive
	// appends to one string are printed as one change.
	last   *placeChange
	events int
}

// placeChange is the part of a change that the command shows.
type placeChange struct {
	RunID, Position, Type, Op, Path, Text string
	N                                     *int
	Time                                  time.Time
	Before, After                         json.RawMessage
}

// changesPage is a page of changes.
type changesPage struct {
	MessageID, Next string
	Changes         []json.RawMessage
	Unread          []struct{ RunID, Reason string }
}

// page prints a page of changes.
func (b *blamed) page(page changesPage) error {
	for _, r := range page.Unread {
		b.out.note("run %s is shown as a whole: %s", oneLine(r.RunID, 80), oneLine(r.Reason, 300))
	}
	b.isMessage = page.MessageID != ""
	for _, raw := range page.Changes {
		if b.out.asJSON {
			if err := b.out.document(raw); err != nil {
				return err
			}
			continue
		}
		var c placeChange
		if err := decode(raw, "change", &c); err != nil {
			return err
		}
		if last := b.last; last != nil && c.Op == "append" && last.Op == "append" && last.RunID == c.RunID && last.Path == c.Path {
			b.events++
			last.Text = oneLine(last.Text+c.Text, 400)
			continue
		}
		if err := b.print(); err != nil {
			return err
		}
		b.last, b.events = &c, 1
	}
	return nil
}

// done prints the last change.
func (b *blamed) done() error {
	if b.last == nil && !b.out.asJSON {
		b.out.note("no event of the chain changed it")
	}
	return b.print()
}

// print prints the last change: a line with its event, then the change itself in the style of a diff.
func (b *blamed) print() error {
	c := b.last
	if c == nil {
		return nil
	}
	head := "run " + oneLine(c.RunID, 80)
	switch {
	case c.N == nil:
		head += ": the whole run"
	case c.Type == "":
		head += fmt.Sprintf(", step %d: its input", *c.N)
	default:
		head += fmt.Sprintf(", step %d: %s", *c.N, oneLine(c.Type, 80))
	}
	if b.events > 1 {
		head += fmt.Sprintf(" (%d events)", b.events)
	}
	if !c.Time.IsZero() {
		head = b.out.when(c.Time) + "  " + head
	}
	if c.Position != "" {
		head = c.Position + "  " + head
	}
	line := func(sign, text string) string { return labelled("  ", sign+" ", oneLine(text, 400), b.out.width()) }
	before, after := b.shown(c.Before), b.shown(c.After)
	var change string
	switch c.Op {
	case "append":
		change = line("…", c.Text)
	case "add":
		change = line("+", after)
	case "remove":
		change = line("-", before)
	default:
		if more, grew := strings.CutPrefix(after, before); grew && b.isMessage && more != "" {
			change = line("…", more)
		} else {
			change = line("-", before) + line("+", after)
		}
	}
	return b.out.text(b.out.bold(head) + "\n" + change)
}

// shown formats a value. It formats a message as its author and text.
func (b *blamed) shown(value json.RawMessage) string {
	var m message
	if !b.isMessage || json.Unmarshal(value, &m) != nil {
		return string(value)
	}
	return toolNames{}.who(m) + ": " + strings.TrimSpace(m.text("", 400))
}
