package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/app"
)

// stageNames are the stages of an installation, in the order of the flow.
var stageNames = []string{"ingest", "compactor", "indexer", "query"}

// stageStatus is one stage of one process. Its status is the process's, or "absent" if no process of the stage was found.
type stageStatus struct {
	admin.Figures
	URL     string            `json:"url,omitempty"`
	Version string            `json:"version,omitempty"`
	Status  string            `json:"status"`
	Checks  map[string]string `json:"checks,omitempty"`
}

func newStatus(out *output) *cobra.Command {
	var live bool
	var timeout time.Duration
	var at *server
	cmd := &cobra.Command{
		Use:     "status [URL]...",
		GroupID: groupOperate,
		Short:   "Show the stages: version, readiness, lag, open runs, dead letters",
		Long: `Show each stage: its version, whether it is ready and else why not, its lag, the oldest open run and the dead
letters since it started. The admin addresses are those of --admin-url or of the context, and each of the four
stages must be there. Without address and context, they are the stages' default ones on this machine or, if no ingest
listens there, skein dev's.
A host of several addresses, as of a headless Service, is a process each. With URL it checks these processes only,
as the health checks of containers do.

Exit code 0: all are ready. 1: one is not ready, is absent or does not answer; stderr says which and why.`,
		Example: `  skein status
  skein status --admin-url http://ingest:8421,http://compactor:8421,http://indexer:8421,http://query:8421
  skein status http://127.0.0.1:8421 --live`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || at.context != "" { // else the current context's token may belong to another server
				if err := at.applyContext(); err != nil {
					return err
				}
			}
			path, urls := "/status", args
			if live {
				path = "/healthz"
			}
			if len(args) == 0 {
				urls = at.adminURLs
			}
			first := len(urls) == 0
			if first && at.context != "" {
				return app.Usagef("context %[1]s has no admin addresses: name those of its stages with --admin-url, or with skein context set %[1]s; "+
					"skein dev answers at its --url, too", oneLine(at.context, 80))
			}
			if first { // skein dev may have no admin address
				urls = []string{"http://" + app.AdminListen(stageNames[0]), defaultURL}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			all, err := at.statuses(ctx, net.DefaultResolver.LookupNetIP, urls, path, first)
			if err != nil {
				return err
			}
			return showStatus(out, all, len(args) == 0 && !live)
		},
	}
	at = &server{out: out, flags: cmd.Flags()}
	at.secureFlags(cmd)
	at.adminFlags(cmd)
	listFlags(cmd, out)
	cmd.Flags().BoolVar(&live, "live", false, "check only whether a restart could help, not whether Kafka and the store answer")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answers")
	return cmd
}

// adminFlags adds the flags of the admin addresses.
func (s *server) adminFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&s.adminURLs, "admin-url", nil, "`URL` of the --admin-listen of each process, separated by commas, for skein status")
	cmd.Flags().StringVar(&s.adminToken, "admin-token-file", "", "`FILE` with the token that the admin addresses require")
}

// statuses returns the stages of the processes at the URLs, or only those of the first one that accepts a connection. A process
// that does not answer has a status that says so.
func (s *server) statuses(ctx context.Context, look lookup, urls []string, path string, first bool) (all []stageStatus, err error) {
	secure, err := s.tls()
	if err != nil {
		return nil, err
	}
	token := ""
	if s.adminToken != "" {
		text, err := os.ReadFile(s.adminToken)
		if err != nil {
			return nil, app.Usagef("reading the admin token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	ask := func(p process) ([]stageStatus, error) { return processStatus(ctx, secure, p, path, token) }
	for ; first && len(urls) > 1; urls = urls[1:] {
		if _, err := ask(process{url: urls[0]}); !errors.Is(err, syscall.ECONNREFUSED) {
			urls = urls[:1]
			break
		}
	}
	if first && urls[0] == "http://"+app.AdminListen(stageNames[0]) { // the others listen beside it
		for _, stage := range stageNames[1:] {
			urls = append(urls, "http://"+app.AdminListen(stage))
		}
	}
	var processes []process
	for _, base := range urls {
		processes = append(processes, processesAt(ctx, look, base)...)
	}
	answers, errs := make([][]stageStatus, len(processes)), make([]error, len(processes))
	var asked sync.WaitGroup
	for i, p := range processes {
		asked.Go(func() { answers[i], errs[i] = ask(p) })
	}
	asked.Wait()
	for i, err := range errs {
		if app.ExitCode(err) == app.ExitUsage {
			return nil, err
		}
		if err != nil {
			answers[i] = []stageStatus{{URL: processes[i].url, Status: "no answer", Checks: map[string]string{"admin": err.Error()}}}
		}
	}
	return slices.Concat(answers...), nil
}

// process is a process by its admin address.
type process struct {
	url string
	// host is the name and port by which it is asked and which its certificate must have; "" is the host of url.
	host string
}

// lookup returns the addresses of a host's name.
type lookup func(ctx context.Context, network, name string) ([]netip.Addr, error)

// processesAt returns the process at a URL. If the host is a name of several IPv4 addresses, as that of a headless Service in
// Kubernetes, these are a process each.
func processesAt(ctx context.Context, look lookup, base string) (all []process) {
	u, err := url.Parse(base)
	if err != nil {
		return []process{{url: base}} // processStatus returns the error
	}
	port, host := u.Port(), u.Host
	if ips, err := look(ctx, "ip4", u.Hostname()); err == nil && len(ips) > 1 {
		for _, ip := range ips {
			if u.Host = ip.String(); port != "" {
				u.Host += ":" + port
			}
			all = append(all, process{u.String(), host})
		}
		return all
	}
	return []process{{url: base}}
}

// processStatus returns the stages of a process.
func processStatus(ctx context.Context, secure *tls.Config, p process, path, token string) ([]stageStatus, error) {
	url := strings.TrimRight(p.url, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, app.Usagef("reading url %q: want http://HOST:PORT", p.url)
	}
	if req.Host = p.host; p.host != "" {
		if secure = secure.Clone(); secure == nil {
			secure = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		secure.ServerName, _, _ = strings.Cut(p.host, ":")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// No proxy, since an admin address is internal.
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("reading answer: %w", err)
	}
	var answer admin.Status
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status == "" {
		return nil, fmt.Errorf("reading answer: %s is not the admin address of a Skein stage (HTTP %d)", url, resp.StatusCode)
	}
	if len(answer.Stages) == 0 {
		answer.Stages = make([]admin.Figures, 1)
	}
	var all []stageStatus
	for _, f := range answer.Stages {
		all = append(all, stageStatus{Figures: f, URL: p.url, Version: answer.Version, Status: answer.Status, Checks: answer.Checks})
	}
	return all, nil
}

// showStatus prints the stages, with those that are missing if they all must be there, and returns what is wrong as an error.
func showStatus(out *output, all []stageStatus, whole bool) error {
	for _, name := range stageNames {
		if whole && !slices.ContainsFunc(all, func(s stageStatus) bool { return s.Stage == name }) {
			all = append(all, stageStatus{Figures: admin.Figures{Stage: name}, Status: "absent"})
		}
	}
	slices.SortStableFunc(all, func(a, b stageStatus) int {
		return cmp.Compare(slices.Index(stageNames, a.Stage), slices.Index(stageNames, b.Stage))
	})
	l := lister{out: out, columns: []column{{name: "STAGE", keep: true}, {name: "READY", keep: true}, {name: "VERSION"},
		{name: "LAG", right: true},
		{name: "OPEN RUNS", right: true}, {name: "OLDEST", right: true}, {name: "DEAD LETTERS", right: true}, {name: "URL"}}}
	var wrong []string
	for _, s := range all {
		if err := l.add(listed{raw: s, id: []string{s.Stage}, row: []string{cmp.Or(s.Stage, "?"), s.Status, s.Version, seconds(s.Lag),
			number(s.OpenRuns), seconds(s.OldestOpenRun), number(s.DeadLetters), s.URL}}); err != nil {
			return err
		}
		text := strings.TrimPrefix(s.Stage+": ", ": ") + s.Status
		for _, name := range slices.Sorted(maps.Keys(s.Checks)) {
			if s.Checks[name] != "ok" {
				text += "; " + name + ": " + s.Checks[name]
			}
		}
		switch {
		case s.Status == "degraded":
			out.note("%s", text)
		case s.Status != "ok":
			wrong = append(wrong, text)
		}
	}
	if err := l.end(); err != nil || len(wrong) == 0 {
		return err
	}
	text := strings.Join(wrong, "; ")
	if strings.Contains(text, ": absent") {
		text += " (name the address of each stage with --admin-url, or skein context set)"
	}
	return errors.New(text)
}

// seconds and number format a figure that a stage may not have.
func seconds(v *float64) string {
	if v == nil {
		return ""
	}
	return time.Duration(*v * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.0f", *v)
}
