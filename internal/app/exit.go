package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// The exit codes of every Skein command. They are part of the command line's contract.
const (
	ExitDone     = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitNotFound = 3
	ExitDiffers  = 4
)

// ExitError carries an exit code up to Main. Its text is the wrapped error's; without one it says nothing, as the output says it all.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *ExitError) Unwrap() error { return e.Err }

// Usagef says that the command was called in a way that it does not understand: exit code 2.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// NotFoundf says that what was asked for is not there: exit code 3.
func NotFoundf(format string, args ...any) error {
	return &ExitError{Code: ExitNotFound, Err: fmt.Errorf(format, args...)}
}

// Differsf says that a comparison found a difference: exit code 4.
func Differsf(format string, args ...any) error {
	return &ExitError{Code: ExitDiffers, Err: fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of a command that ended with err.
//
// A closed pipe is a reader that has seen enough, as in "skein threads | head": done.
func ExitCode(err error) int {
	var exit *ExitError
	switch {
	case err == nil, IsClosedPipe(err):
		return ExitDone
	case errors.As(err, &exit):
		return exit.Code
	default:
		return ExitFailed
	}
}

// IsClosedPipe reports whether err comes from writing to a pipe that has no reader any more.
func IsClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// Report writes err as one line to stderr, as far as there is something to say.
func Report(stderr io.Writer, name string, err error) {
	if err == nil || err.Error() == "" || IsClosedPipe(err) {
		return
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	// Nothing can be done about a stderr that cannot be written.
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
}
