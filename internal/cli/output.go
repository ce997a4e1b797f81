package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// output writes a command's results to stdout and all else to stderr.
type output struct {
	stdout io.Writer
	stderr io.Writer
	quiet  bool
	// noColor is set by NO_COLOR or TERM=dumb.
	noColor bool
	// dumb means that the terminal has no cursor control.
	dumb bool
	// screen is the terminal on which the output finally appears, if stdout itself is a buffer.
	screen interface{ Fd() uintptr }
	// self is the command as the user typed it, such as bin/skein, and at is the server that it calls; both are for hints.
	self string
	at   *server
	// form is the form of the result that --output selects, and asJSON reports whether that form is JSON.
	form    string
	asJSON  bool
	environ []string
}

// defaultWidth is the width of text if stdout is no terminal.
const defaultWidth = 100

func newOutput(stdout, stderr io.Writer, environ []string) *output {
	o := &output{stdout: stdout, stderr: stderr, self: "skein", environ: environ}
	if f, ok := stdout.(*os.File); ok && isTerminal(f) {
		o.stdout = &tty{file: f}
	}
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); (name == "NO_COLOR" && value != "") || (name == "TERM" && value == "dumb") {
			o.noColor = true
			o.dumb = o.dumb || name == "TERM"
		}
	}
	return o
}

// note prints a line on stderr, unless --quiet.
func (o *output) note(format string, args ...any) {
	if o.quiet {
		return
	}
	// An error of stderr does not end the command.
	_, _ = fmt.Fprintf(o.stderr, format+"\n", args...)
}

// json writes v as one line.
func (o *output) json(v any) error {
	enc := json.NewEncoder(o.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// document writes JSON text unchanged, with one line feed at the end.
func (o *output) document(b []byte) error {
	text := strings.TrimRight(string(b), "\n") + "\n"
	_, err := io.WriteString(o.stdout, text)
	return err
}

// result writes text, or v as JSON. It writes a v that is []byte unchanged.
func (o *output) result(v any, text string) error {
	if !o.asJSON {
		return o.text(text)
	}
	if document, is := v.([]byte); is {
		return o.document(document)
	}
	return o.json(v)
}

// lines writes the elements of one member of an answer, each unchanged as one line of JSON.
func (o *output) lines(answer []byte, member string) error {
	list, err := elements(answer, member)
	if err != nil {
		return err
	}
	for _, element := range list {
		if err := o.document(element); err != nil {
			return err
		}
	}
	return nil
}

// text writes a result for people.
func (o *output) text(s string) error {
	_, err := io.WriteString(o.stdout, s)
	return err
}

// colour reports whether stdout may have colours.
func (o *output) colour() bool { return !o.noColor && o.display() != nil }

// display is the terminal that shows stdout, or nil.
func (o *output) display() interface{ Fd() uintptr } {
	if f, ok := o.stdout.(interface{ Fd() uintptr }); ok && isTerminal(f) {
		return f
	}
	return o.screen
}

// drawingWidth is the width into which tables and pictures must fit; 0 means no limit, if stdout is no terminal.
func (o *output) drawingWidth() int {
	if o.display() == nil {
		return 0
	}
	return o.width()
}

// when formats a time: on a terminal as how long ago it was, else as RFC 3339 in UTC.
func (o *output) when(t time.Time) string {
	if o.display() != nil {
		return ago(time.Now(), t)
	}
	return t.UTC().Format(time.RFC3339)
}

// width is the number of columns of stdout.
func (o *output) width() int {
	if f := o.display(); f != nil {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return defaultWidth
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// bold returns s in bold if colours are allowed.
func (o *output) bold(s string) string { return o.paint(styleBold, s) }

// paint returns s in a style if colours are allowed.
func (o *output) paint(style, s string) string {
	if !o.colour() {
		return s
	}
	return paint(style, s)
}

// paint returns s in a style.
func paint(style, s string) string {
	if style == "" || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}
