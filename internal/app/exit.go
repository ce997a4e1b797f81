package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// ExitError is an error with an exit code for Main. Without a wrapped error Main prints nothing, because the output already explains it.
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

// Usagef returns the error of a wrong call of a command: exit code 2.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// NotFoundf returns the error of something that does not exist: exit code 3.
func NotFoundf(format string, args ...any) error {
	return &ExitError{Code: ExitNotFound, Err: fmt.Errorf(format, args...)}
}

// Differsf returns the error of a comparison with differences: exit code 4.
func Differsf(format string, args ...any) error {
	return &ExitError{Code: ExitDiffers, Err: fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of a command that ended with err. A closed pipe is not a failure: in "skein threads | head"
// the reader has what it wants.
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

// IsClosedPipe reports whether err comes from writing to a pipe that no longer has a reader. A broken connection of a network is none.
func IsClosedPipe(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	return errors.Is(err, syscall.EPIPE) && !network
}

// Report writes err as one line to stderr, unless it has no text.
func Report(stderr io.Writer, name string, err error) {
	if err == nil || err.Error() == "" || IsClosedPipe(err) {
		return
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	// There is nowhere left to report an error of stderr.
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
}
