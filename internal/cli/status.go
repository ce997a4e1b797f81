package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
)

// defaultAdminURL is the default admin address of a stage.
const defaultAdminURL = "http://127.0.0.1:8421"

func newHealth(out *output) *cobra.Command {
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "health [URL]",
		GroupID: groupOperate,
		Short:   "Check whether a stage is ready",
		Long: `Check at a stage's admin address whether it is ready. Without URL it checks ` + defaultAdminURL + `, or,
if nothing listens there, skein dev at ` + defaultURL + `.
Exit code 0: ready. 1: not ready, or no answer; the output says why. Made for health checks of containers.`,
		Example: `  skein health
  skein health http://127.0.0.1:8421 --live`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			bases := []string{defaultAdminURL, defaultURL}
			if len(args) == 1 {
				bases = args
			}
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return firstHealth(ctx, out, bases, path)
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "check only whether a restart could help, not whether Kafka and the store answer")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	jsonFlags(cmd, out)
	return cmd
}

// firstHealth checks the health of the first server in bases that accepts a connection.
func firstHealth(ctx context.Context, out *output, bases []string, path string) error {
	var tried []string
	for _, base := range bases {
		url := strings.TrimRight(base, "/") + path
		err := health(ctx, out, url)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		tried = append(tried, url)
	}
	return fmt.Errorf("no answer from %s: nothing listens there", strings.Join(tried, " or "))
}

// health calls the stage without a proxy, since an admin address is internal.
func health(ctx context.Context, out *output, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return app.Usagef("reading url %q: want http://HOST:PORT", url)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("reading answer: %w", err)
	}
	var answer struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status == "" {
		return fmt.Errorf("reading answer: %s is not the admin address of a Skein stage (HTTP %d)", url, resp.StatusCode)
	}
	if err := out.result(body, answer.Status+"\n"); err != nil || resp.StatusCode == http.StatusOK {
		return err
	}
	reasons := []string{answer.Status}
	for _, name := range slices.Sorted(maps.Keys(answer.Checks)) {
		if answer.Checks[name] != "ok" {
			reasons = append(reasons, name+": "+answer.Checks[name])
		}
	}
	return errors.New(strings.Join(reasons, "; "))
}
