//go:build !unix

package apache

import (
	"errors"
	"os"
	"syscall"

	"github.com/skeinhq/skein/test/parts"
)

func supported() error {
	return &parts.UnavailableError{Reason: "Kafka from jars runs on Unix systems only",
		Install: "use Docker, or name brokers in SKEIN_TEST_BROKERS"}
}

var errNotHere = errors.New("not on this system")

func detached() *syscall.SysProcAttr { return nil }
func exited(*os.Process) bool        { return true }
func (n *node) stop() error          { return errNotHere }
func (n *node) pause() error         { return errNotHere }
func (n *node) resume() error        { return errNotHere }
