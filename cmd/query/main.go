// Command query runs the stage that answers questions about threads and runs over HTTP.
package main

import "github.com/skeinhq/skein/internal/app"

func main() { app.Main("query", app.StageCommand(stage())) }
