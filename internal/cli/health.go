package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
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

// firstHealth checks the first of the servers that accepts a connection.
func firstHealth(ctx context.Context, out *output, bases []string, path string) error {
	var tried []string
	for _, base := range bases {
		base = strings.TrimRight(base, "/")
		err := health(ctx, out, base, path)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		tried = append(tried, base+path)
	}
	return fmt.Errorf("no answer from %s: nothing listens there", strings.Join(tried, " or "))
}

func health(ctx context.Context, out *output, base, path string) error {
	c, err := client.New(base)
	if err != nil {
		return app.Usagef("%w", err)
	}
	defer c.Close()
	body, err := c.Get(ctx, path, nil)
	refused := &client.Error{Status: http.StatusOK}
	switch {
	case errors.As(err, &refused):
		body = refused.Body
	case err != nil:
		return fmt.Errorf("no answer from %s: %w", base+path, err)
	}
	var answer struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status == "" {
		return fmt.Errorf("reading answer: %s is not the admin address of a Skein stage (HTTP %d)", base+path, refused.Status)
	}
	if err := out.result(body, answer.Status+"\n"); err != nil || refused.Status == http.StatusOK {
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
