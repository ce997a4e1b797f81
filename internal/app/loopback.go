package app

import (
	"fmt"
	"net"
	"net/netip"
)

// CheckLoopback returns an error for an address that other machines can reach, and any error of Exposed.
func CheckLoopback(addr string) error {
	exposed, err := Exposed(addr)
	if exposed {
		err = fmt.Errorf("address %q can be reached from other machines, and there is no authentication: use 127.0.0.1, [::1] or localhost", addr)
	}
	return err
}

// Exposed reports whether other machines can reach an address. A host name other than localhost is an error, because its
// resolution may change.
func Exposed(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("address %q: want HOST:PORT, such as 127.0.0.1:8420", addr)
	}
	if isLoopback(host) {
		return false, nil
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return false, fmt.Errorf("address %q: want an IP address or localhost: use 127.0.0.1, or 0.0.0.0 for all addresses of this machine", addr)
	}
	return true, nil
}

// isLoopback reports whether a host, without port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
