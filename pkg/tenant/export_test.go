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
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = nil
}

// Reload fetches a key set.
func Reload(ctx context.Context, t *Tokens) { t.reload(ctx, time.Now()) }

// ForgetFetch has a key set be fetched again that was fetched just now.
func ForgetFetch(t *Tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried = time.Time{}
}
