// Command ingest serves the HTTP API that agents publish to: it takes the events of agents and writes them to Kafka.
package main

import "github.com/skeinhq/skein/internal/app"

func main() { app.Main("ingest", app.StageCommand(stage())) }
