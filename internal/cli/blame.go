package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/lineage/draw"
)

func newBlame(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var asJSON bool
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
		RunE: func(cmd *cobra.Command, args []string) error {
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
			return at.connect(func(c *client.Client) error {
				b := blamed{out: out, asJSON: asJSON}
				for {
					var page changesPage
					if _, err := fetch(cmd.Context(), c, path+"/changes", q, "changes", &page); err != nil {
						return found(err, out, at, args[0], run)
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
		},
	}
	serverFlags(cmd, &at)
	jsonLinesFlags(cmd, &asJSON)
	cmd.Flags().StringVar(&run, "run", "", "`RUN` at the end of the chain")
	cmd.Flags().StringVar(&messageID, "message", "", "`ID` of a message, instead of a place in the state")
	return cmd
}

// blamed collects the changes of a place in the state, or of a message.
type blamed struct {
	out    *output
	asJSON bool
	rows   []blameRow
}

// blameRow is one change, or several consecutive appends to one string of a message.
type blameRow struct {
	placeChange
	was    string // the value before, if it was replaced
	events int
}

// placeChange is the part of a change that the command shows.
type placeChange struct {
	RunID    string          `json:"runId"`
	N        *int            `json:"n"`
	Position string          `json:"position"`
	Time     time.Time       `json:"time"`
	Type     string          `json:"type"`
	Op       string          `json:"op"`
	Before   json.RawMessage `json:"before"`
	After    json.RawMessage `json:"after"`
	Path     string          `json:"path"`
	Text     string          `json:"text"`
}

// changesPage is a page of changes.
type changesPage struct {
	MessageID string            `json:"messageId"`
	Changes   []json.RawMessage `json:"changes"`
	Unread    []struct {
		RunID  string `json:"runId"`
		Reason string `json:"reason"`
	} `json:"unread"`
	Next string `json:"next"`
}

// page prints a page of changes as JSON, or adds it to the table.
func (b *blamed) page(page changesPage) error {
	for _, r := range page.Unread {
		b.out.note("run %s is shown as a whole: %s", oneLine(r.RunID, 80), oneLine(r.Reason, 300))
	}
	for _, raw := range page.Changes {
		if b.asJSON {
			if err := b.out.document(raw); err != nil {
				return err
			}
			continue
		}
		var c placeChange
		if err := decode(raw, "change", &c); err != nil {
			return err
		}
		b.add(c, page.MessageID != "")
	}
	return nil
}

// add adds a row, or extends the last one. A row keeps only the text that the table shows.
func (b *blamed) add(c placeChange, isMessage bool) {
	if n := len(b.rows) - 1; n >= 0 && c.Op == "append" {
		if last := &b.rows[n]; last.Op == "append" && last.RunID == c.RunID && last.Path == c.Path {
			last.events++
			last.Text = oneLine(last.Text+c.Text, 400)
			return
		}
	}
	var was, what string
	switch c.Op {
	case "append":
		what = c.Text
	case "add":
		what = "+ " + shown(c.After, isMessage)
	case "remove":
		what = "- " + shown(c.Before, isMessage)
	default:
		was, what = shown(c.Before, isMessage), shown(c.After, isMessage)
		if more, grew := strings.CutPrefix(what, was); grew && isMessage && more != "" {
			was, what = "", "… "+strings.TrimSpace(more)
		}
	}
	c.Before, c.After, c.Text = nil, nil, what
	b.rows = append(b.rows, blameRow{c, was, 1})
}

// shown formats a value; a message as its author and text.
func shown(value json.RawMessage, isMessage bool) string {
	var m message
	if !isMessage || json.Unmarshal(value, &m) != nil {
		return oneLine(string(value), 400)
	}
	return oneLine(toolNames{}.who(m)+": "+m.text("", 400), 400)
}

// done prints the table.
func (b *blamed) done() error {
	if b.asJSON {
		return nil
	}
	if len(b.rows) == 0 {
		b.out.note("no event of the chain changed it")
		return nil
	}
	columns := []column{
		{name: "POSITION", keep: true}, {name: "TIME"}, {name: "RUN", keep: true}, {name: "STEP"}, {name: "EVENT"}, {name: "CHANGE", keep: true},
	}
	rows := make([][]string, len(b.rows))
	for i, r := range b.rows {
		step, at, event := "", "", r.Type
		if r.N != nil {
			step = fmt.Sprint(*r.N)
		}
		if !r.Time.IsZero() {
			at = b.out.when(r.Time)
		}
		switch {
		case r.N == nil:
			event = "(the whole run)"
		case event == "":
			event = "(its input)"
		}
		rows[i] = []string{r.Position, at, r.RunID, step, event}
	}
	width := b.out.drawingWidth()
	room := 400 // rows keep no more
	if width > 0 {
		others := 0
		for line := range strings.Lines(table(columns[:len(columns)-1], rows, width, true)) {
			others = max(others, draw.TextWidth(strings.TrimSuffix(line, "\n")))
		}
		room = max(width-others-tableGap, 30)
	}
	for i, r := range b.rows {
		what := oneLine(r.Text, room)
		if r.was != "" {
			what = oneLine(r.was, room/2) + " → " + oneLine(r.Text, room/2)
		}
		if r.events > 1 {
			what += fmt.Sprintf(" (%d events)", r.events)
		}
		rows[i] = append(rows[i], what)
	}
	return b.out.text(table(columns, rows, width, false))
}
