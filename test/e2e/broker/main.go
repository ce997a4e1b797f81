// Command broker is the broker of "skein dev" as a process of its own, for the end-to-end tests. It
// prints the address that it listens on and ends when its standard input does, so that it never
// outlives the test.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/skeinhq/skein/pkg/kafka/embedded"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: broker FOLDER")
	}
	b, err := embedded.Start(embedded.Config{Dir: args[0], Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := fmt.Println(b.Addr()); err != nil {
		return fmt.Errorf("telling the address: %w", err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("waiting for the end of standard input: %w", err)
	}
	return nil
}
