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

// ErrAddressInUse says that another process listens on the broker's address.
var ErrAddressInUse = errors.New("address in use")

// Config says where the broker keeps its data and where it listens.
type Config struct {
	// Dir is the broker's own folder; it is made if it does not exist. The broker takes no lock:
	// the caller sees to it that one process uses it at a time.
	Dir string
	// Listen is HOST:PORT; port 0 takes a free one. The host is also what clients are told to
	// connect to, so it must be an address of this machine, not a wildcard.
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

// Start brings the broker up with what its folder holds. It answers when Start returns.
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
	// The address first: a folder that takes long to read is read for nothing if it is taken.
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
		// Not SyncWrites: an acknowledged record is in the page cache, which outlives a kill of the
		// process and is what Kafka itself promises on one node (it does not fsync either). An
		// fsync a batch would protect against a power cut at the price of a disk flush (1 to 20 ms)
		// in every publish and several in every commit.
		kfake.DataDir(cfg.Dir),
		// As on the topics: one value of the limit in a batch. Topics have their own setting; this
		// is for those that other clients make.
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

// closeListener closes a listener that kfake may have closed already.
func closeListener(ln net.Listener) error {
	if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// checkHost refuses addresses that clients could not be told to connect to.
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

// Addr is the address that the broker listens on, with the port it has got.
func (b *Broker) Addr() string { return b.addr }

// Close writes what is left and stops the broker. Close clients before: they would only retry.
func (b *Broker) Close() { b.close.Do(b.cluster.Close) }
