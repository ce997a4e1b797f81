package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
)

// call is one request that is being answered.
type call struct {
	*Service
	*front.Call
	// threadID and runID are those of the path; runID is empty where it has none.
	threadID, runID string
	// load is what the request holds of what tenants share.
	load *load
}

// headerIndexedTo says how far the index is in answers that have no room for it.
const headerIndexedTo = "Skein-Indexed-To"

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

// send answers with a body. Its caller may be slow, so the slot is given back before.
func (c *call) send(status int, contentType string, body []byte) {
	if status == http.StatusTooEarly {
		c.W.Header().Set("Retry-After", "1")
	}
	c.holdEncoder()
	c.load.rest()
	c.Send(status, contentType, body)
}

// encoderBytes is what compressing an answer takes for as long as it is written.
const encoderBytes = 1 << 20

// holdEncoder counts what compressing the answer takes. Where the tenant has no memory left, the answer is sent as it is.
func (c *call) holdEncoder() {
	takes := c.R.Header.Get("Accept-Encoding")
	if c.Route.Compress && (strings.Contains(takes, "gzip") || strings.Contains(takes, "zstd")) && c.load.hold(encoderBytes) != nil {
		c.W.Header().Set(gzhttp.HeaderNoCompression, "no memory")
	}
}
