package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"github.com/skeinhq/skein/internal/problem"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// call is one request that is being answered.
type call struct {
	*Service
	w      *statusWriter
	r      *http.Request
	tenant string
	// release ends the watch over the caller's credentials, once the call is answered.
	release func()
	query   url.Values
	// threadID and runID are those of the path; runID is empty where it has none.
	threadID, runID string
	// load is what the request holds of what tenants share.
	load *load
}

// headerIndexedTo says how far the index is in answers that have no room for it.
const headerIndexedTo = "Skein-Indexed-To"

// ids reads the ids of the path.
func (c *call) ids(pattern string) error {
	for name, to := range map[string]*string{"thread": &c.threadID, "run": &c.runID} {
		if !strings.Contains(pattern, "{"+name+"}") {
			continue
		}
		*to = c.r.PathValue(name)
		if err := record.ValidateID(*to); err != nil {
			return badRequest("the " + name + " in the path: " + err.Error())
		}
	}
	return nil
}

const typeJSON = "application/json"

// json answers with v. Numbers and escapes inside raw JSON stay as they are. What v holds much of is counted before, by weigh.
func (c *call) json(status int, v any) error {
	b, err := encoded(v)
	if err != nil {
		return err
	}
	c.send(status, typeJSON, append(b, '\n'))
	return nil
}

// encoded returns v as JSON.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding answer: %w: %w", errBroken, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// answerCopies is how many times an answer's text is in memory while it is written.
const answerCopies = 2

// weigh counts the memory that an answer with these messages and texts takes.
func (c *call) weigh(messages []agui.Message, texts ...json.RawMessage) error {
	return c.load.take(answerBytes(messages, texts...))
}

func answerBytes(messages []agui.Message, texts ...json.RawMessage) int64 {
	n := 0
	for _, m := range messages {
		n += len(m.Raw)
	}
	for _, t := range texts {
		n += len(t)
	}
	return int64(answerCopies * n)
}

// send answers with a body. What is behind a tenant's credentials is for no shared cache, and is
// asked for again each time: an erased thread must not live on in one.
func (c *call) send(status int, contentType string, body []byte) {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	if status == http.StatusTooEarly {
		h.Set("Retry-After", "1")
	}
	c.w.WriteHeader(status)
	c.load.rest() // its caller may be slow
	// An error here is the caller's connection, so it cannot be reported to the caller.
	_, _ = c.w.Write(body)
}

// encoderBytes is what compressing an answer takes for as long as it is written.
const encoderBytes = 1 << 20

// holdEncoder counts what compressing the answer takes. Where the tenant has no memory left, the answer is sent as it is.
func (c *call) holdEncoder() {
	takes := c.r.Header.Get("Accept-Encoding")
	if (strings.Contains(takes, "gzip") || strings.Contains(takes, "zstd")) && c.load.hold(encoderBytes) != nil {
		c.w.Header().Set(gzhttp.HeaderNoCompression, "no memory")
	}
}

// refuse answers with an error. It is logged where it is a fault on this side, once and here.
func (c *call) refuse(err error) {
	switch {
	case tenant.Revoked(c.r.Context()):
		err = tenant.ErrRevoked
		c.w.Header().Set("Connection", "close") // what is left of its body is no request
	case errors.Is(err, errSlowBody):
		c.w.Header().Set("Connection", "close") // as above
	case c.r.Context().Err() != nil && !errors.Is(err, errBroken):
		return // the caller has hung up
	}
	if over := new(quota.ExceededError); errors.As(err, &over) {
		over.SetHeader(c.w.Header())
		problem.Write(c.w, problem.Problem{
			Type: quota.ProblemType, Status: http.StatusTooManyRequests, Detail: over.Error(),
			Extensions: map[string]any{"reason": "quota", "limit": over.Kind.String(), "violated-policies": []string{over.Kind.String()}},
		})
		return
	}
	r, ours := refusalOf(err)
	if ours {
		c.cfg.Logger.ErrorContext(c.r.Context(), "request failed",
			"tenant", c.tenant, "thread_id", c.threadID, "run_id", c.runID, "error", err)
	}
	r.write(c.w)
}
