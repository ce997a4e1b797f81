// Command example is a fold that check.mjs can hold to the official client: Skein's own. It reads
// jobs and answers each with what the fold makes of it, one JSON object a line; README.md of the
// folder above tells the rest.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

type job struct {
	ID    int `json:"id"`
	Start struct {
		Messages []agui.Message  `json:"messages"`
		State    json.RawMessage `json:"state"`
	} `json:"start"`
	Events []json.RawMessage `json:"events"`
}

type answer struct {
	ID       int             `json:"id"`
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	jobs := json.NewDecoder(bufio.NewReader(in))
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	for {
		var j job
		if err := jobs.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a job: %w", err)
		}
		a, err := fold(j)
		if err != nil {
			return fmt.Errorf("folding job %d: %w", j.ID, err)
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answering job %d: %w", j.ID, err)
		}
	}
}

func fold(j job) (answer, error) {
	run := compact.New(j.Start.Messages, j.Start.State)
	for _, raw := range j.Events {
		if run.Ended() {
			break // no stream of the kit goes on behind its terminal event
		}
		ev, err := agui.Decode(raw)
		if err == nil {
			err = run.Apply(ev)
		}
		if err != nil && !agui.IsMalformed(err) { // a malformed event counts as not sent
			return answer{}, err
		}
	}
	return answer{ID: j.ID, Messages: run.Messages(), State: run.State()}, nil
}
