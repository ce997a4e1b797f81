// Command skein runs Skein on one machine and talks to its HTTP API.
package main

import (
	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/cli"
)

func main() { app.Main("skein", cli.Run) }
