package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is the interval of --watch.
const watchEvery = 2 * time.Second

func watchFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVarP(v, "watch", "w", false,
		"refresh every "+watchEvery.String()+" until Ctrl-C, and print the output again when it changes")
}

// clearScreen moves the cursor to the upper left corner and erases the screen.
const clearScreen = "\x1b[H\x1b[2J"

// watch calls show every watchEvery until ctx ends. It prints the output of show whenever that differs from the previous
// output, which it replaces on a terminal. An error of the first call ends the watch. It notes a later error, such as that of
// a restarting server, once and continues.
func (o *output) watch(ctx context.Context, show func(ctx context.Context, out *output) error) error {
	var before []byte
	noted := ""
	for {
		var page bytes.Buffer
		round := *o
		round.stdout, round.screen = &page, o.display()
		switch err := show(ctx, &round); {
		case errors.Is(err, context.Canceled):
			return nil // Ctrl-C is the usual end of a watch
		case err != nil && before == nil:
			return err
		case err != nil:
			if text := oneLine(err.Error(), 1000); text != noted {
				noted = text
				o.note("%s; trying again", text)
			}
		case before == nil || !bytes.Equal(page.Bytes(), before):
			noted, before = "", page.Bytes()
			if before == nil {
				before = []byte{} // nil would mean that no call has succeeded yet
			}
			start := ""
			if round.screen != nil && !o.dumb {
				start = clearScreen
			}
			if _, err := io.WriteString(o.stdout, start+string(before)); err != nil {
				return err
			}
		default:
			noted = ""
		}
		if pause(ctx, watchEvery) != nil {
			return nil //nolint:nilerr // Ctrl-C is its usual end
		}
	}
}
