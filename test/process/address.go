package process

import (
	"net"
	"testing"
)

// FreeAddress returns an address of this machine at which nothing listens.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }() // only listened
	return l.Addr().String()
}

// AwaitListening waits until the process takes connections at an address.
func (p *Process) AwaitListening(address string) {
	p.tb.Helper()
	Eventually(p.tb, p.Name+" listens at "+address, func() (string, bool) {
		select {
		case <-p.Ended:
			p.tb.Fatalf("%s has ended:\n%s", p.Name, p.Tail())
		default:
		}
		conn, err := (&net.Dialer{}).DialContext(p.tb.Context(), "tcp", address)
		if err != nil {
			return err.Error(), false
		}
		_ = conn.Close() // only opened
		return "", true
	})
}
