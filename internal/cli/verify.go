package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
)

func newVerify(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "verify THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Fold the raw events again and compare with the record",
		Long: `Fold the raw events of a run again and compare what comes of it with the run's record: the hashes over
events and input, their number, and every member of the record. Without RUN it is every run of the
thread, with --all every run of every thread.

What cannot be proved is said: events that Kafka has deleted by age, ends that Skein made, contents
that were cut. The exit code is 4 where a record differs, and 1 where a run that was named is not proved.`,
		Example: `  skein verify my-thread
  skein verify --all --json | jq -r 'select(.verdict != "proved") | .threadId'`,
		Args: usageArgs(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return app.Usagef("say THREAD, or --all for every thread")
			}
			return at.connect(func(c *client.Client) error {
				v := verification{out: out, at: at, client: c, asJSON: asJSON}
				switch {
				case len(args) == 2:
					return v.one(cmd.Context(), args[0], args[1])
				case len(args) == 1:
					return v.many(cmd.Context(), args)
				}
				var threads []string
				if _, err := eachThread(cmd.Context(), c, url.Values{}, 0, func(raw json.RawMessage) error {
					var t struct{ ThreadID string }
					err := json.Unmarshal(raw, &t)
					threads = append(threads, t.ThreadID)
					return err
				}); err != nil {
					return err
				}
				return v.many(cmd.Context(), threads)
			})
		},
	}
	serverFlags(cmd, &at)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&all, "all", false, "every run of every thread")
	return cmd
}

// proof is what the server says of a run's record, as far as a person is shown it.
type proof struct {
	ThreadID    string   `json:"threadId"`
	RunID       string   `json:"runId"`
	Verdict     string   `json:"verdict"`
	Reason      string   `json:"reason"`
	Record      claim    `json:"record"`
	Raw         *claim   `json:"raw"`
	Differences []string `json:"differences"`
	DiffersFrom string   `json:"differsFrom"`
	Unproved    []string `json:"unproved"`
}

type claim struct {
	Events int64  `json:"events"`
	SHA256 string `json:"sha256"`
}

// The verdicts.
const (
	verdictProved  = "proved"
	verdictDiffers = "differs"
)

// verification proves runs one after another.
type verification struct {
	out    *output
	at     server
	client *client.Client
	asJSON bool
}

func (v *verification) ask(ctx context.Context, thread, run string) (proof, []byte, error) {
	body, err := v.client.Get(ctx, client.RunPath(thread, run)+"/verify", nil)
	if err != nil {
		return proof{}, nil, found(err, v.out, v.at, thread, run)
	}
	var p proof
	if err := json.Unmarshal(body, &p); err != nil {
		return proof{}, nil, fmt.Errorf("decoding proof: %w", err)
	}
	return p, body, nil
}

// one proves a run that was named.
func (v *verification) one(ctx context.Context, thread, run string) error {
	p, body, err := v.ask(ctx, thread, run)
	if err != nil {
		return err
	}
	if v.asJSON {
		err = v.out.document(body)
	} else {
		err = v.out.text(p.text())
	}
	switch {
	case err != nil:
		return err
	case p.Verdict == verdictDiffers:
		return app.Differsf("the record of run %s differs from its raw events", oneLine(run, 80))
	case p.Verdict != verdictProved:
		return errors.New("run " + oneLine(run, 80) + " is not proved")
	}
	return nil
}

// many proves all runs of threads. Of what is as it should be, people are only told the number.
func (v *verification) many(ctx context.Context, threads []string) error {
	bar := newProgress(v.out, "verify")
	defer bar.end()
	counts := map[string]int{}
	runs := 0
	for i, thread := range threads {
		body, err := v.client.Get(ctx, client.ThreadPath(thread)+"/lineage", nil)
		if err != nil {
			return found(err, v.out, v.at, thread, "")
		}
		var lineage struct{ Runs []struct{ RunID string } }
		if err := json.Unmarshal(body, &lineage); err != nil {
			return fmt.Errorf("decoding lineage: %w", err)
		}
		for j, r := range lineage.Runs {
			p, body, err := v.ask(ctx, thread, r.RunID)
			if err != nil {
				return err
			}
			counts[p.Verdict]++
			runs++
			if len(threads) == 1 {
				bar.step(j+1, len(lineage.Runs))
			}
			switch {
			case v.asJSON:
				err = v.out.document(body)
			case p.Verdict != verdictProved:
				bar.end()
				err = v.out.text(p.text())
			}
			if err != nil {
				return err
			}
		}
		if len(threads) > 1 {
			bar.step(i+1, len(threads))
		}
	}
	bar.end()
	differ := counts[verdictDiffers]
	if !v.asJSON {
		if err := v.out.text(fmt.Sprintf("%s: %d proved, %d differ, %d not proved\n",
			count(runs, "run"), counts[verdictProved], differ, runs-counts[verdictProved]-differ)); err != nil {
			return err
		}
	}
	if differ > 0 {
		return app.Differsf("%s that the raw events do not make", count(differ, "record"))
	}
	return nil
}

// text is a proof for people.
func (p proof) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "thread %s, run %s: ", oneLine(p.ThreadID, 80), oneLine(p.RunID, 80))
	switch p.Verdict {
	case verdictProved:
		fmt.Fprintf(&b, "proved\n  %s, sha256 %s\n", count(p.Record.Events, "event"), p.Record.SHA256)
	case verdictDiffers:
		fmt.Fprintf(&b, "differs at %s or behind, in %s\n", p.DiffersFrom, strings.Join(p.Differences, ", "))
		fmt.Fprintf(&b, "  record      %s, sha256 %s\n", count(p.Record.Events, "event"), p.Record.SHA256)
		if p.Raw != nil {
			fmt.Fprintf(&b, "  raw events  %s, sha256 %s\n", count(p.Raw.Events, "event"), p.Raw.SHA256)
		}
	default:
		fmt.Fprintf(&b, "not proved: %s\n", oneLine(p.Reason, 200))
	}
	for _, u := range p.Unproved {
		fmt.Fprintf(&b, "  not part of the proof: %s\n", oneLine(u, 200))
	}
	return b.String()
}
