// Command smoke asks an agent, then restores the thread at another URL; it prints the agent's texts of both.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"

	"github.com/ag-ui-protocol/ag-ui/sdks/community/go/pkg/client/sse"
	"github.com/ag-ui-protocol/ag-ui/sdks/community/go/pkg/core/events"
	"github.com/ag-ui-protocol/ag-ui/sdks/community/go/pkg/core/types"
	"github.com/sirupsen/logrus"
)

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	question := []types.Message{{ID: "u1", Role: types.RoleUser, Content: "Hello"}}
	for i, messages := range [][]types.Message{question, {}} {
		client := sse.NewClient(sse.Config{Endpoint: os.Args[1+i], Logger: quiet})
		frames, failed, err := client.Stream(sse.StreamOptions{Payload: types.RunAgentInput{
			ThreadID: os.Args[3], RunID: os.Args[4+i], State: map[string]any{}, Messages: messages,
			Tools: []types.Tool{}, Context: []types.Context{}, ForwardedProps: map[string]any{},
		}})
		if err != nil {
			log.Fatal(err)
		}
		texts := map[string]string{}
		for frame := range frames {
			event, err := events.EventFromJSON(frame.Data)
			if err != nil {
				log.Fatal(err)
			}
			switch e := event.(type) {
			case *events.TextMessageContentEvent:
				texts[e.MessageID] += e.Delta
			case *events.MessagesSnapshotEvent:
				for _, m := range e.Messages {
					if text, is := m.Content.(string); is && m.Role == types.RoleAssistant {
						texts[m.ID] = text
					}
				}
			}
		}
		select {
		case err := <-failed:
			if err != nil {
				log.Fatal(err)
			}
		default:
		}
		if err := json.NewEncoder(os.Stdout).Encode(texts); err != nil {
			log.Fatal(err)
		}
	}
}
