package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts"
)

//go:embed streams/pom.xml
var pom []byte

//go:embed streams/jars.sha256
var checksums []byte

// buildStreams fetches Kafka Streams and compiles the topology, and returns the command to run it with.
func buildStreams(ctx context.Context, dir string) ([]string, error) {
	java, err := parts.Java(ctx)
	if err != nil {
		return nil, err
	}
	javac, err := parts.Javac(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := parts.Jars{Name: "streams-" + apache.Version, Pom: pom, SHA256: checksums}.Folder(ctx)
	if err != nil {
		return nil, err
	}
	path := dir + string(os.PathListSeparator) + filepath.Join(jars, "*")
	compile := exec.CommandContext(ctx, javac, "-Xlint:all", "-Werror", "-d", dir, "-cp", path, "bench/peers/streams/Peer.java")
	out, err := compile.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compiling the Streams topology: %w\n%s", err, out)
	}
	return []string{java, "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", path, "Peer"}, nil
}

func (b *bench) streams(ctx context.Context, round int) (r result, err error) {
	application := fmt.Sprintf("%sstreams-%d", b.cfg.TopicPrefix, round)
	if err := b.topic(ctx, application, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}); err != nil {
		return r, err
	}
	state, err := os.MkdirTemp(b.dir, "streams-")
	if err != nil {
		return r, err
	}
	args := []string{strings.Join(b.cfg.Brokers, ","), b.cfg.Topics().Events, application, state}
	c, err := b.start(ctx, b.java[0], slices.Concat(b.java[1:], args)...)
	if err != nil {
		return r, err
	}
	return b.drained(ctx, c, application, nil, application, application+"-runs-changelog")
}

// findClient says what is missing of the official client.
func findClient() error {
	if _, err := exec.LookPath("node"); err != nil {
		return &parts.UnavailableError{Reason: "Node is not there for the official AG-UI client", Install: "install Node 20 or later"}
	}
	if _, err := os.Stat("test/conformance/node_modules/@ag-ui/client"); err != nil {
		return errors.New("the official AG-UI client is not there: make conformance-setup brings it")
	}
	return nil
}

func (b *bench) client(ctx context.Context, _ int) (r result, err error) {
	c, err := b.start(ctx, "node", "bench/peers/compact.mjs", b.file)
	if err != nil {
		return r, err
	}
	cpu, err := c.wait(ctx)
	if err != nil {
		return r, err
	}
	var seconds, warmEvents, warmSeconds, warm float64
	if _, err := fmt.Sscan(c.out.String(), &r.Events, &seconds, &warmEvents, &warmSeconds, &warm); err != nil {
		return r, fmt.Errorf("reading what compactEvents took: %w: %q", err, &c.out)
	}
	n := float64(r.Events)
	r.CPU, r.Rate, r.WarmCPU, r.WarmRate, r.MiB = cpu*1e6/n, n/seconds, warm*1e6/warmEvents, warmEvents/warmSeconds, float64(c.peak>>20)
	return r, nil
}
