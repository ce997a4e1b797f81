package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Copy writes the answer to one call of the query stage, in the given media type, to w as it arrives. A truncated
// answer is an error.
func (c *Client) Copy(ctx context.Context, path string, query url.Values, mediaType string, w io.Writer) error {
	req, err := c.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", mediaType)
	resp, err := c.do(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost if it fails
	if _, err = io.Copy(w, answerBody{resp.Body}); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// answerBody is the body of an answer. It wraps read errors, so that they differ from errors of the writer.
type answerBody struct{ io.Reader }

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("reading answer: it was broken off: %w", err)
	}
	return n, err
}
