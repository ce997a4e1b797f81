package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skeinhq/skein/pkg/client"
)

// An agent's answer, as it would come with an HTTP response.
const answer = `data: {"type":"RUN_STARTED","threadId":"example","runId":"run-1"}

data: {"type":"TEXT_MESSAGE_START","messageId":"a1","role":"assistant"}

data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a1","delta":"12 °C."}

data: {"type":"TEXT_MESSAGE_END","messageId":"a1"}

data: {"type":"RUN_FINISHED","threadId":"example","runId":"run-1"}

`

const input = `{"threadId":"example","runId":"run-1","state":{},"messages":[{"id":"u1","role":"user","content":"What is the weather?"}],` +
	`"tools":[],"context":[],"forwardedProps":{}}`

func Example() {
	ctx := context.Background()
	c, err := client.New(address)
	if err != nil {
		panic(err)
	}
	defer c.Close()

	// Publish a run.
	sent, err := c.Publish(ctx, "example", "run-1", []byte(input), client.Events(strings.NewReader(answer)))
	if err != nil {
		panic(err)
	}
	fmt.Println(sent.Accepted, "events")

	// Restore the thread.
	history, err := c.History(ctx, "example", "")
	if err != nil {
		panic(err)
	}
	for _, message := range history.Messages {
		fmt.Println(string(message))
	}

	// Branch: the agent continues from this input.
	next, err := c.Checkout(ctx, "example", "run-1", "")
	if err != nil {
		panic(err)
	}
	next.Messages = append(next.Messages, json.RawMessage(`{"id":"u2","role":"user","content":"And tomorrow?"}`))
	fmt.Println(next.ParentRunID, len(next.Messages))
	// Output:
	// 5 events
	// {"id":"u1","role":"user","content":"What is the weather?"}
	// {"id":"a1","role":"assistant","content":"12 °C."}
	// run-1 3
}

// A run that goes on is followed to its end.
func ExampleClient_Stream() {
	c, err := client.New(address)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if _, err := c.Publish(context.Background(), "followed", "run-1", nil, client.Events(strings.NewReader(answer))); err != nil {
		panic(err)
	}
	for event, err := range c.Stream(context.Background(), "followed", "run-1") {
		if err != nil {
			panic(err)
		}
		var e struct{ Type, Delta string }
		if err := json.Unmarshal(event.Data, &e); err != nil {
			panic(err)
		}
		fmt.Println(e.Type, e.Delta)
	}
}

// The runs of an agent that failed within a day.
func ExampleClient_Runs() {
	c, err := client.New(address)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	for run, err := range c.Runs(context.Background(), map[string][]string{"agent": {"support"}, "error": {"any"}, "since": {"24h"}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(run.ThreadID, run.RunID, run.ErrorMessage)
	}
}
