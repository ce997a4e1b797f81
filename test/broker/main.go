// Command broker runs a command with a Kafka of one node that its tests share: it starts the node, names it in SKEIN_TEST_BROKERS and ends
// it with the command. Where brokers are named already, or Kafka cannot be started here, it only runs the command: each test then finds its
// own, or says what is missing.
//
//	go run ./test/broker make check-race
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

func run(command []string) (err error) {
	if len(command) == 0 {
		return errors.New("want a command to run")
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, os.Environ()
	if os.Getenv(kafkatest.BrokersVariable) != "" {
		return cmd.Run()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cluster, err := apache.Start(ctx, apache.Options{Nodes: 1, Heap: "768m"})
	var missing *parts.UnavailableError
	switch {
	case errors.As(err, &missing):
		return cmd.Run()
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	cmd.Env = append(cmd.Env, kafkatest.BrokersVariable+"="+strings.Join(cluster.Brokers(), ","))
	return cmd.Run()
}
