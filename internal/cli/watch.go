package cli

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is how often --watch looks again.
const watchEvery = 2 * time.Second

func watchFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVarP(v, "watch", "w", false, "refresh every "+watchEvery.String()+" until Ctrl-C, and print the output again when it changes")
}

// clearScreen moves to the upper left corner of the screen and erases all that is on it.
const clearScreen = "\x1b[H\x1b[2J"

// watch calls show every watchEvery until ctx ends, and prints what it writes whenever that differs from the time before: on a
// terminal in its place, elsewhere behind it. An error ends it if the first call gives it. Later the server may be away for a while: each error is then
// noted once, and the next call may succeed.
func (o *output) watch(ctx context.Context, show func(ctx context.Context, out *output) error) error {
	var before []byte
	noted := ""
	for {
		var page bytes.Buffer
		round := *o
		round.stdout, round.screen = &page, o.display()
		switch err := show(ctx, &round); {
		case errors.Is(err, context.Canceled):
			return nil // Ctrl-C, which is how it is meant to end
		case err != nil && before == nil:
			return err
		case err != nil:
			if text := oneLine(err.Error(), 1000); text != noted {
				noted = text
				o.note("%s; trying again", text)
			}
		case before == nil || !bytes.Equal(page.Bytes(), before):
			noted = ""
			before = append([]byte{}, page.Bytes()...)
			if round.screen != nil && !o.dumb {
				page = *bytes.NewBuffer(append([]byte(clearScreen), before...))
			}
			if _, err := page.WriteTo(o.stdout); err != nil {
				return err
			}
		default:
			noted = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}
