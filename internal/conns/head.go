package conns

import "net/http"

const (
	// usualHead is what the head of a request may take without being counted.
	usualHead = 4 << 10
	// fieldBytes is what net/http takes for a header field beside its text: the entry of a map, a slice and two strings.
	fieldBytes = 100
)

// HeadBytes is what the line and the headers of a request take for as long as it goes on, as far as that is more than any request may: bytes to be
// counted for its tenant.
func HeadBytes(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host) - usualHead
	for name, values := range r.Header {
		for _, value := range values {
			n += fieldBytes + len(name) + len(value)
		}
	}
	return max(n, 0)
}
