package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/skeinhq/skein/pkg/kafka"
)

// ErrAddressInUse means that another process listens on the broker's address.
var ErrAddressInUse = errors.New("address in use")

// Config contains the broker's data folder and address.
type Config struct {
	// Dir is the broker's own folder; Start creates it if it does not exist. The broker takes no lock:
	// the caller must ensure that only one process uses the folder at a time.
	Dir string
	// Listen is HOST:PORT; port 0 means a free port. The broker also advertises the host to clients,
	// so it must be an address of this machine, not a wildcard.
	Listen string
	// Logger gets the broker's warnings; nil: none.
	Logger *slog.Logger
}

// Broker is a running broker.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	close   sync.Once
}

// Start starts the broker with the data in its folder. When Start returns, the broker answers.
func Start(cfg Config) (*Broker, error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("starting embedded broker: the data folder has no name")
	}
	if err := checkHost(cfg.Listen); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("starting embedded broker: %w", err)
	}
	// Listen first, so that a taken address is an error before a large folder is read.
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", cfg.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("starting embedded broker: %w: another process listens on %s: stop it, or choose another address", ErrAddressInUse, cfg.Listen)
		}
		return nil, fmt.Errorf("starting embedded broker: %w", err)
	}
	opts := []kfake.Opt{
		// One process needs no replicas.
		kfake.NumBrokers(1),
		kfake.ClusterID("skein-dev"),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
		// SyncWrites is not set. An acknowledged record is in the page cache, which survives a kill of
		// the process. Kafka itself promises no more on one node, since it does not fsync either. An
		// fsync per batch would protect against a power cut, but cost a disk flush (1 to 20 ms) in every
		// publish and several in every commit.
		kfake.DataDir(cfg.Dir),
		// The batch limit of Skein's topics, for topics that other clients create. Skein's topics have
		// their own setting.
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": strconv.Itoa(kafka.MaxBatchBytes)}),
	}
	if cfg.Logger != nil {
		opts = append(opts, kfake.WithLogger(logger{cfg.Logger}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting embedded broker on %s: %w", cfg.Dir, err), closeListener(ln))
	}
	return &Broker{cluster: cluster, addr: ln.Addr().String()}, nil
}

// closeListener closes a listener that kfake may already have closed.
func closeListener(ln net.Listener) error {
	if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// checkHost refuses addresses to which clients cannot connect, such as wildcards.
func checkHost(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("starting embedded broker: address %q: want HOST:PORT, such as 127.0.0.1:8492", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("starting embedded broker: address %q: name one address, as clients are told to connect to it", addr)
	}
	return nil
}

// Addr returns the address on which the broker listens, with its actual port.
func (b *Broker) Addr() string { return b.addr }

// Close writes remaining data and stops the broker. Close clients first; otherwise they retry.
func (b *Broker) Close() { b.close.Do(b.cluster.Close) }
