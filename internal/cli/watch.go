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
// terminal in its place, elsewhere behind it. An error ends it.
func (o *output) watch(ctx context.Context, show func(ctx context.Context, out *output) error) error {
	var before []byte
	for {
		var page bytes.Buffer
		round := *o
		round.stdout, round.screen = &page, o.display()
		if err := show(ctx, &round); errors.Is(err, context.Canceled) {
			return nil // Ctrl-C, which is how it is meant to end
		} else if err != nil {
			return err
		}
		if before == nil || !bytes.Equal(page.Bytes(), before) {
			before = append([]byte{}, page.Bytes()...)
			if round.screen != nil && !o.dumb {
				page = *bytes.NewBuffer(append([]byte(clearScreen), before...))
			}
			if _, err := page.WriteTo(o.stdout); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}
