package apache

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePorts returns n ports of 127.0.0.1 on which no process listens. They are below the range for outgoing connections
// (from 32768 on Linux, 49152 elsewhere). A killed node's port therefore stays free until its next start, however many
// clients connect meanwhile.
func FreePorts(n int) ([]int, error) {
	const first, last = 20000, 32000
	var ports []int
	for range 1000 {
		port := first + rand.IntN(last-first)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		// Keep each port open until all are found, so that none is returned twice.
		defer func() { _ = l.Close() }()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("looking for %d free ports on 127.0.0.1: found %d", n, len(ports))
}
