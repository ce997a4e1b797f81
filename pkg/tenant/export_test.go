package tenant

import "time"

// ForgetFetch has a key set be fetched again that was fetched just now.
func ForgetFetch(t *Tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried = time.Time{}
}
