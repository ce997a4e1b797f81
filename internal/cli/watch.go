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

// watch calls show every watchEvery until ctx ends, and prints its output whenever it differs from the previous one; on a
// terminal it replaces the previous one. An error of the first call ends it. A later error, such as a server that restarts, is
// noted once and the calls go on.
func (o *output) watch(ctx context.Context, show func(ctx context.Context, out *output) error) error {
	var before []byte
	noted := ""
	for {
		var page bytes.Buffer
		round := *o
		round.stdout, round.screen = &page, o.display()
		switch err := show(ctx, &round); {
		case errors.Is(err, context.Canceled):
			return nil // Ctrl-C is its usual end
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
				before = []byte{} // the first call printed nothing
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
