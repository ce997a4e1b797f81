// Command compactor runs the stage that folds skein.events into run records, branch snapshots and
// dead letters.
package main

import "github.com/skeinhq/skein/internal/app"

func main() { app.Main("compactor", app.StageCommand(stage())) }
