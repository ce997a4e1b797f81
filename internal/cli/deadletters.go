package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/record"
)

func newDeadLetters(out *output) *cobra.Command {
	return group("dead-letters", "List records that could not be folded, and retry them",
		newDeadLettersList(out), newDeadLettersRetry(out))
}

// deadLetterFilter holds the flags that select dead letters.
type deadLetterFilter struct {
	kafka                         app.KafkaFlags
	tenant, reason, thread, since string
}

func (d *deadLetterFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.tenant, "tenant", "", "the tenant's `ID`, with --brokers")
	f.StringVar(&d.reason, "reason", "", "only of `REASON`: "+strings.Join(deadletter.AllReasons(), ", "))
	f.StringVar(&d.thread, "thread", "", "only of `THREAD`")
	f.StringVar(&d.since, "since", "", "only from `TIME` on, such as 2026-09-17T12:00:00Z")
	d.kafka.Flags(f)
}

func (d *deadLetterFilter) query() (deadletter.Query, error) {
	q := deadletter.Query{Tenant: d.tenant, Reason: d.reason, Thread: d.thread}
	if d.reason != "" && !slices.Contains(deadletter.AllReasons(), d.reason) {
		return q, app.Usagef("--reason %s is unknown: want one of %s", d.reason, strings.Join(deadletter.AllReasons(), ", "))
	}
	var err error
	q.Since, err = timeFlag("--since", d.since)
	return q, err
}

func timeFlag(name, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339, text); err != nil {
		return t, app.Usagef("%s %s: want a time such as 2026-09-17T12:00:00Z", name, text)
	}
	return t, nil
}

func newDeadLettersList(out *output) *cobra.Command {
	var at *server
	var d deadLetterFilter
	var limit int
	var anyTenant bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List records that could not be folded, with reason and position",
		Long: `List records of skein.events that could not be folded: the position of each, the reason, and whether a retry can help
(now; only after a change of settings or version; never). Over HTTP, the list is that of the API key's tenant. With
--brokers it is read from Kafka directly, for --tenant, or for --any-tenant, also those whose key names no tenant.

On a terminal, columns that do not fit are left out; -o wide prints all columns. Elsewhere the list is tab-separated,
without a header, with times in UTC: id, reason, retry, tenant (with --any-tenant), thread, run, time, position,
detail.`,
		Example: `  skein dead-letters list --since 2026-09-17T12:00:00Z
  skein dead-letters list --brokers kafka-0:9092 --tenant acme --reason no-run --json
  skein dead-letters list --thread my-thread -o name`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			direct := cmd.Flags().Changed("brokers")
			switch {
			case limit < 0:
				return app.Usagef("limit %d is negative", limit)
			case direct && at.addressed():
				return app.Usagef("pass --url (or --read-url) or --brokers, not both")
			case direct && (d.tenant == "") != anyTenant:
				return app.Usagef("pass --tenant ID or --any-tenant with --brokers")
			case !direct && (d.tenant != "" || anyTenant):
				return app.Usagef("over HTTP the tenant is the API key's; --tenant and --any-tenant need --brokers")
			}
			q, err := d.query()
			if err != nil {
				return err
			}
			q.AnyTenant = anyTenant
			l := lister{out: out, none: "no dead letters", columns: []column{
				{name: "ID", keep: true}, {name: "REASON", keep: true}, {name: "RETRY"}, {name: "THREAD"}, {name: "RUN"}, {name: "AT"},
				{name: "POSITION"}, {name: "DETAIL"},
			}}
			if anyTenant {
				l.columns = slices.Insert(l.columns, 3, column{name: "TENANT"})
			}
			add := func(x deadletter.Record) error {
				row := deadLetterRow(out, x)
				if anyTenant {
					row.row = slices.Insert(row.row, 3, orDash(x.Tenant))
				}
				return l.add(row)
			}
			if direct {
				err = deadLettersOfKafka(cmd.Context(), &d.kafka, q, limit, add)
			} else {
				err = at.connect(func(c *client.Client) error {
					q := url.Values{}
					set(q, "reason", d.reason)
					set(q, "thread", d.thread)
					set(q, "since", d.since)
					_, err := each(cmd.Context(), c, "/v1/dead-letters", "deadLetters", q, limit, func(x deadletter.Record, _ json.RawMessage) error {
						return add(x)
					})
					return err
				})
			}
			if err != nil {
				return err
			}
			return l.end()
		},
	}
	at = serverFlags(cmd, out)
	d.flags(cmd)
	listFlags(cmd, out)
	cmd.Flags().IntVar(&limit, "limit", 0, "at most `N` dead letters; 0 is all")
	cmd.Flags().BoolVar(&anyTenant, "any-tenant", false, "those of all tenants, and those that belong to none, with --brokers")
	return cmd
}

func deadLetterRow(out *output, x deadletter.Record) listed {
	retry, at, detail := string(x.Chance), "-", x.Detail
	if x.RetryOf != nil {
		retry += ", failed once"
	}
	if x.Position != nil {
		at = x.Position.String()
	}
	if out.display() != nil && out.form != formWide {
		detail = oneLine(detail, 60)
	}
	return listed{x, []string{x.ID.String()}, []string{
		x.ID.String(), x.Reason, retry, orDash(x.ThreadID), orDash(x.RunID), out.when(x.At), at, orDash(detail),
	}}
}

func orDash(s string) string { return cmp.Or(s, "-") }

// deadLettersOfKafka calls f with the dead letters of a query, but with at most limit of them unless limit is 0.
func deadLettersOfKafka(ctx context.Context, at *app.KafkaFlags, q deadletter.Query, limit int, f func(deadletter.Record) error) error {
	cfg, err := at.Config("skein-dead-letters")
	if err != nil {
		return err
	}
	n := 0
	for after := (*record.Position)(nil); ; {
		page, err := deadletter.ReadPage(ctx, cfg, q, after, pageSize)
		if err != nil {
			return err
		}
		for _, x := range page.Records {
			if err := f(x); err != nil {
				return err
			}
			if n++; n == limit {
				return nil
			}
		}
		if after = page.Next; after == nil {
			return nil
		}
	}
}

func newDeadLettersRetry(out *output) *cobra.Command {
	var d deadLetterFilter
	var until string
	var all, again, dry bool
	cmd := &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Publish the original records of dead letters again",
		Long: `Publish the original records of a tenant's dead letters to skein.events again, with the same key, value and
headers and one header that marks the retry, in one transaction: all of them or none. They come after the thread's
current events. A no-run event joins the run that is then open in its thread, whichever it is.

Those that cannot succeed (after-terminal, bad-key, not JSON) are never published. Those that need a change first
(malformed, too-large, bad-headers, unknown-kind, not-from-ingest) are published only if --reason or ID names them.
Nothing is published twice by accident: the command finds earlier retries, and erasures, on skein.events, and of two
commands at the same time one publishes nothing.

Exit code 0: all selected were published. 4: some were left out, and the list says why. 3: there are none.`,
		Example: `  skein dead-letters retry --brokers kafka-0:9092 --tenant acme --reason no-run --thread my-thread --dry-run
  skein dead-letters retry --brokers kafka-0:9092 --tenant acme 3:17 3:18`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			q, err := d.query()
			if err != nil {
				return err
			}
			if q.Until, err = timeFlag("--until", until); err != nil {
				return err
			}
			for _, id := range ids {
				p, err := record.ParsePosition(id)
				if err != nil {
					return app.Usagef("%w; skein dead-letters list gives IDs", err)
				}
				q.IDs = append(q.IDs, p)
			}
			narrowed := len(ids) > 0 || d.reason != "" || d.thread != "" || d.since != "" || until != ""
			switch {
			case d.tenant == "":
				return app.Usagef("the tenant is missing: pass --tenant ID")
			case narrowed == all:
				return app.Usagef("select dead letters by ID, --reason, --thread, --since or --until, or all with --all")
			}
			cfg, err := d.kafka.Config("skein-dead-letters")
			if err != nil {
				return err
			}
			bar := newProgress(out, "looking for earlier retries")
			done, err := deadletter.Retry{Query: q, Again: again, DryRun: dry, Progress: bar.step}.Run(cmd.Context(), cfg)
			bar.end()
			if err != nil {
				return err
			}
			return printRetried(out, done, dry)
		},
	}
	d.flags(cmd)
	jsonLinesFlags(cmd, out)
	f := cmd.Flags()
	f.StringVar(&until, "until", "", "only before `TIME`")
	f.BoolVar(&all, "all", false, "all dead letters of the tenant")
	f.BoolVar(&again, "again", false, "also those that were retried before, or may have been")
	f.BoolVar(&dry, "dry-run", false, "publish nothing, only say what would be done")
	return cmd
}

// why describes what a retry did.
var why = map[deadletter.Outcome]string{
	deadletter.Published:       "published",
	deadletter.Hopeless:        "left out: it cannot succeed",
	deadletter.Unchanged:       "left out: it fails again unless something has changed; name its reason or ID if it has",
	deadletter.PublishedBefore: "left out: published again before; --again does it once more",
	deadletter.FailedBefore:    "left out: it is a retry that failed; --again tries once more",
	deadletter.Untold: "left out: skein.events does not go back far enough to say whether it was published before; " +
		"--again does it anyway",
	deadletter.Erased: "left out: its thread was erased",
}

func printRetried(out *output, done []deadletter.Retried, dry bool) error {
	published := 0
	for _, r := range done {
		if r.Outcome == deadletter.Published {
			published++
		}
		text := why[r.Outcome]
		switch {
		case r.Outcome == deadletter.Published && dry:
			text = "would be published"
		case r.RetriedAt != nil:
			text += " (" + r.RetriedAt.String() + ")"
		}
		line := fmt.Sprintf("%s  %s  %s: %s\n", r.ID, oneLine(r.ThreadID, 40), oneLine(r.Reason, 20), text)
		if err := out.result(r, line); err != nil {
			return err
		}
	}
	switch {
	case len(done) == 0:
		return app.NotFoundf("there are no such dead letters")
	case published < len(done):
		return app.Differsf("left out: %d of %s", len(done)-published, count(len(done), "dead letter"))
	}
	return nil
}
