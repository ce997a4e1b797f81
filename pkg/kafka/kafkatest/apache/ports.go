package apache

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePorts returns ports of 127.0.0.1 that nobody listens on. They lie below those that systems give
// to outgoing connections (from 32768 on Linux, 49152 elsewhere): a node that is killed must find its
// own port free when it comes back, however many clients have connected meanwhile.
func FreePorts(n int) ([]int, error) {
	const first, last = 20000, 32000
	var ports []int
	for range 1000 {
		port := first + rand.IntN(last-first)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		// Kept open until all are found, so that no port comes twice.
		defer func() { _ = l.Close() }()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("looking for %d free ports on 127.0.0.1: found %d", n, len(ports))
}
