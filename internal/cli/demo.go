package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/lineage/draw"
	"github.com/skeinhq/skein/pkg/store"
)

func newDemo(out *output) *cobra.Command {
	var f devFlags
	var exit bool
	cmd := &cobra.Command{
		Use:     "demo",
		GroupID: groupServe,
		Short:   "Run Skein and play example conversations",
		Long: `Run all stages as "skein dev" does, play example conversations through the HTTP API, show the
results, and stay up until Ctrl-C. Meanwhile the demo's own agent streams a run for some minutes, which
you can follow and stop.

Conversations that exist already are not played again; an interrupted demo is completed.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Whichever of server and demo ends first also ends the other.
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			if !exit {
				url, err := demo.ServeRollout(ctx)
				if err != nil {
					return err
				}
				f.agents = append(f.agents, demo.RolloutAgent+"="+url)
			}
			cfg, err := f.config(out)
			if err != nil {
				return err
			}
			server, err := dev.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			stopped := make(chan error, 1)
			go func() {
				stopped <- server.Wait(ctx)
				stop()
			}()
			if err = printReady(out, server); err == nil {
				err = playDemo(ctx, out, server)
			}
			if err == nil && !exit {
				err = playRollout(ctx, out, server)
			}
			if err == nil && !exit {
				out.note("\nStill running: the HTTP API listens on %s. Ctrl-C stops it.", server.URL())
				<-ctx.Done()
			}
			interrupted := cmd.Context().Err() != nil
			stop()
			serverErr := <-stopped
			if errors.Is(err, context.Canceled) && (interrupted || serverErr != nil) {
				err = nil // Ctrl-C is the usual end; otherwise serverErr tells why
			}
			return errors.Join(err, serverErr)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&exit, "exit", false, "exit after showing everything")
	return cmd
}

// playRollout calls the demo's agent through the proxy, as an interface does. The run goes on after it has returned.
func playRollout(ctx context.Context, out *output, running *dev.Server) error {
	run := time.Now().UTC().Format("20060102T150405")
	agent := running.URL() + "/v1/agents/" + demo.RolloutAgent
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, agent, bytes.NewReader(demo.RolloutInput(run)))
	if err != nil {
		return fmt.Errorf("calling the demo's agent: %w", err)
	}
	key, err := (&server{out: out, keyFile: running.KeyFile()}).key()
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("calling the demo's agent: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("calling the demo's agent: %s", answer.Status), answer.Body.Close())
	}
	out.note("\nFor three minutes a run streams, which you can follow and stop, on the page or by the command:")
	out.note("  %s/?thread=%s", running.URL(), demo.RolloutThread)
	out.note("  %s", out.hint("cancel", demo.RolloutThread, run))
	return answer.Body.Close()
}

// playDemo publishes the conversations and prints what the API returns after that.
func playDemo(ctx context.Context, out *output, running *dev.Server) error {
	conversations, err := demo.Conversations(time.Now())
	if err != nil {
		return err
	}
	at := server{out: out, url: running.URL(), keyFile: running.KeyFile()}
	return at.connect(func(c *client.Client) error {
		bar := newProgress(out, "playing example conversations")
		played, err := demo.Player{Client: c, Settle: running.Settle, Progress: bar.step}.Play(ctx, conversations)
		bar.end()
		if err != nil {
			return err
		}
		if played.Runs > 0 {
			out.note("played %s of example conversations through the HTTP API, %s", count(played.Runs, "run"), count(played.Events, "event"))
		}
		if played.Present > 0 {
			out.note("%s already there", count(played.Present, "run"))
		}
		return showDemo(ctx, out, c, conversations)
	})
}

// showDemo prints the threads, commands to try, and the thread with branches.
func showDemo(ctx context.Context, out *output, c *client.Client, conversations []demo.Conversation) error {
	titles := make(map[string]string, len(conversations))
	for _, conv := range conversations {
		titles[conv.ThreadID] = conv.Title
	}
	titles[demo.RolloutThread] = "a run that you can follow and stop"
	var rows [][]string
	if err := eachThread(ctx, c, url.Values{}, 0, func(t store.Thread, _ json.RawMessage) error {
		rows = append(rows, []string{t.ThreadID, t.Status, strconv.Itoa(t.Runs), titles[t.ThreadID]})
		return nil
	}); err != nil {
		return err
	}
	columns := []column{{name: "THREAD", keep: true}, {name: "STATUS"}, {name: "RUNS", right: true}, {name: "WHAT IT SHOWS"}}
	if err := out.text(table(columns, rows, out.width(), false) + "\n"); err != nil {
		return err
	}
	out.note("Try, in another terminal:")
	for _, args := range [][]string{{"history", "support-4711"}, {"show", demo.Branched}, {"diff", demo.Branched, "hotel", "hotel-again"}} {
		out.note("  %s", out.hint(args[0], args[1:]...))
	}
	out.note("")

	body, err := c.Get(ctx, client.ThreadPath(demo.Branched)+"/lineage", url.Values{"words": {"true"}})
	if err != nil {
		return err
	}
	picture, err := drawLineage(body, false, draw.TextOptions{Width: out.drawingWidth(), Color: out.colour()})
	if err != nil {
		return err
	}
	return out.text(fmt.Sprintf("%s: %s\n%s\n", out.bold(demo.Branched), titles[demo.Branched], strings.TrimRight(picture, "\n")))
}
