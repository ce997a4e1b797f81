package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

// erasedWithin limits how long the command waits for an erasure.
const erasedWithin = time.Minute

func newErase(out *output) *cobra.Command {
	var at *server
	var all, yes, noWait bool
	cmd := &cobra.Command{
		Use:     "erase THREAD | --all-threads",
		GroupID: groupWrite,
		Short:   "Erase a thread, or all of a tenant, permanently",
		Long: `Erase everything that a thread has up to now: its runs with their messages and states, its snapshots, and its
events for every reader. Events that are published later form a new thread of the same id.

The command waits, for at most a minute, until no reader gets anything of the thread any more. Then it says when
the bytes will be gone from the compactor's local store, and from Kafka: run records and snapshots once the brokers
compact, events and dead letters with their retention. The exit code is 1 if the erasure is not done by then.

--all-threads erases every thread that the index has of your tenant (that of the key), eight at a time, and looks
behind it whether any is left: the exit code is then 1. Stop the tenant's agents first, and repeat the command once
the index is no longer behind them. It needs the scopes read and erase, and can be interrupted and repeated.`,
		Example: `  skein erase my-thread
  skein erase my-thread --yes --json
  skein erase --all-threads`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) == 1):
				return app.Usagef("name either a thread or --all-threads")
			case all && noWait:
				return app.Usagef("--no-wait is for one thread: --all-threads says at the end what is left")
			}
			in, what := cmd.InOrStdin(), "all threads"
			if !all {
				what = oneLine(args[0], 80)
			}
			if !yes && !isTerminal(in) {
				return app.Usagef("erasing %s: stdin is not a terminal, so there is no confirmation: pass --yes", what)
			}
			ask := func(question string) error {
				if yes {
					return nil
				}
				return confirm(cmd.Context(), out, in, question, errNotMeant)
			}
			return at.connect(func(c *client.Client) error {
				if all {
					return eraseAll(cmd.Context(), out, c, ask)
				}
				runs := indexedRuns(cmd.Context(), c, args[0])
				if err := ask(erasureQuestion(args[0], runs)); err != nil {
					return err
				}
				return erase(cmd.Context(), out, c, args[0], runs, noWait)
			})
		},
	}
	at = serverFlags(cmd, out)
	jsonFlags(cmd, out)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	cmd.Flags().BoolVar(&all, "all-threads", false, "erase all threads of the tenant")
	return cmd
}

// errNotMeant means that the user did not confirm the erasure.
var errNotMeant = errors.New("nothing was erased")

// unknownRuns means that the number of runs is not known.
const unknownRuns = -1

// indexedRuns returns how many runs of a thread are indexed, or unknownRuns: a key with the scope erase may lack the scope
// read. The index may lag.
func indexedRuns(ctx context.Context, c *client.Client, thread string) int {
	var t struct{ Runs int }
	body, err := c.Get(ctx, client.ThreadPath(thread), nil) // not Fetch: the erasure does not wait for this number
	if err == nil {
		err = decode(body, "thread", &t)
	}
	switch {
	case client.IsNotFound(err):
		return 0
	case err != nil:
		return unknownRuns
	}
	return t.Runs
}

func erasureQuestion(thread string, runs int) string {
	what := "thread " + oneLine(thread, 80)
	if runs != unknownRuns {
		what += fmt.Sprintf(" with %d runs", runs)
	}
	return "Erase " + what + "? It cannot be undone."
}

// confirm asks a yes-or-no question. Unless the answer is yes, it returns the argument no.
func confirm(ctx context.Context, out *output, in io.Reader, question string, no error) error {
	if _, err := fmt.Fprintf(out.stderr, "%s [y/N] ", question); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an end of input without an answer counts as no
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return no
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errInterrupted, no)
	}
}

// erasure is the progress of an erasure, as the server reports it.
type erasure struct {
	State string
	erasureTimes
}

// erasureTimes has the time since which readers get nothing (ErasedAt) and the times by which hidden data is gone; nil if unknown.
type erasureTimes struct {
	ErasedAt      *time.Time `json:"erasedAt"`
	LocalPurgedBy *time.Time `json:"localPurgedBy"`
	CompactedBy   *time.Time `json:"compactedBy"`
	RawGoneBy     *time.Time `json:"rawGoneBy"`
}

func (e erasure) done() bool { return e.State == "done" }

// erase erases a thread. The argument runs is how many of its runs were known before.
func erase(ctx context.Context, out *output, c *client.Client, thread string, runs int, noWait bool) error {
	name := oneLine(thread, 80)
	receipt, err := c.EraseThread(ctx, thread)
	if err != nil {
		return fmt.Errorf("erasing %s: %w", name, err)
	}
	follow := c.URL() + receipt.Href
	if noWait {
		text := fmt.Sprintf("thread %s will be erased up to %s: %s shows the progress\n", name, receipt.Position, follow)
		return out.result(receipt, text)
	}
	body, e, err := awaitErasure(ctx, out, c, receipt)
	switch {
	case err != nil:
		return fmt.Errorf("following the erasure of %s: %w; the request was written all the same: %s shows its progress", name, err, follow)
	case out.asJSON:
		err = out.document(body)
	case e.done():
		err = out.text(e.text(name, runs))
	}
	if err == nil && !e.done() {
		err = fmt.Errorf("erasing %s: it is not done after %v and goes on: %s shows its progress", name, erasedWithin, follow)
	}
	return err
}

// awaitErasure polls the server until the erasure is done or the time is up. The server holds each request for a while.
func awaitErasure(ctx context.Context, out *output, c *client.Client, r client.Receipt) ([]byte, erasure, error) {
	begin := time.Now()
	noted := begin
	for {
		var e erasure
		body, err := c.Fetch(ctx, r.Href, url.Values{"wait": {"true"}}, &e)
		if err != nil {
			return nil, erasure{}, err
		}
		now := time.Now()
		if e.done() || now.Sub(begin) >= erasedWithin {
			return body, e, nil
		}
		if now.Sub(noted) >= progressEvery {
			noted = now
			out.note("the erasure is %s since %v", e.State, now.Sub(begin).Round(time.Second))
		}
		if err := pause(ctx, indexedAgain); err != nil {
			return nil, erasure{}, err
		}
	}
}

// text describes a finished erasure for people.
func (e erasure) text(name string, runs int) string {
	text := fmt.Sprintf("thread %s is erased: no reader gets anything of it any more\n", name) + e.bounds()
	if runs == 0 {
		text += "no run of it was known before: is the ID the right one?\n"
	}
	return text
}

// bounds lists by when the hidden data will be gone.
func (e erasureTimes) bounds() string {
	by := func(t *time.Time) string {
		if t == nil {
			return "no bound is known"
		}
		return "by " + t.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("gone from the compactor's local store %s\n"+
		"gone from Kafka: run records and snapshots %s, raw events and dead letters %s\n",
		by(e.LocalPurgedBy), by(e.CompactedBy), by(e.RawGoneBy))
}
