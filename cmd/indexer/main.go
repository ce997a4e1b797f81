// Command indexer runs the stage that writes run records to the lineage store.
package main

import "github.com/skeinhq/skein/internal/app"

func main() { app.Main("indexer", app.StageCommand(stage())) }
