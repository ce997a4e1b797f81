package client

import (
	"context"
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
	to := &sink{w: w}
	if _, err := io.Copy(to, resp.Body); err != nil {
		switch {
		case to.err != nil:
			return to.err
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return fmt.Errorf("reading answer: it was broken off: %w", err)
		}
	}
	return nil
}

// sink distinguishes an error of writing from one of reading.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.err = err
	return n, err
}
