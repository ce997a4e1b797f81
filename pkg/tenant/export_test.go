package tenant

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// UseClient has a key set fetched with the transport of a client.
func UseClient(t *Tokens, c *http.Client, logger *slog.Logger) {
	t.client.Transport, t.logger = c.Transport, logger
	t.Source = t.newSource()
}

// Reload fetches a key set.
func Reload(ctx context.Context, t *Tokens) { _ = t.Load(ctx, time.Now()) }

// ForgetFetch has a key set be fetched again that was fetched just now.
func ForgetFetch(t *Tokens) { t.Source = t.newSource() }
