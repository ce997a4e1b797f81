package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// reads publishes the honest tenant's thread and returns its call: it reads in turn the history, the lineage and its list of threads.
func (p *pipeline) reads() func(ctx context.Context, n int) error {
	thread := threadsOn(Honest, "read-", 1, honestPartitions)[0]
	for i := range 20 {
		p.publish(p.run(Honest, thread, fmt.Sprint("run-", i), texts(1)...))
	}
	p.settle()
	web := p.Web()
	paths := []string{"/v1/threads/" + thread + "/history", "/v1/threads/" + thread + "/lineage", "/v1/threads"}
	return func(ctx context.Context, n int) error {
		return ask(web, p.Request(ctx, Honest, http.MethodGet, p.query.URL+paths[n%len(paths)], nil))
	}
}

// Runs of very many messages are folded again: as large as is allowed, and larger.
func TestQuery_VerifyOfManyMessages(t *testing.T) {
	p := startPipeline(t)
	threads := threadsOn(Hostile, "verify-", 2, hostilePartitions)
	p.publish(p.run(Hostile, threads[0], "r", texts(50_000)...))
	p.publish(p.run(Hostile, threads[1], "r", texts(200_000)...))
	honest := p.reads()
	a := p.Attacker(Hostile)
	a.Against(p.query, "verify of 50,000 and 200,000 messages × 30", honest, func(ctx context.Context) {
		atOnce(ctx, 30, func(i int) {
			a.Send(ctx, http.MethodGet, p.query.URL+"/v1/threads/"+threads[i%2]+"/runs/r/verify", nil)
		})
	}, "422", "429")
}

// Callers join and resume a run of the largest events that no compactor has processed: each has the log read.
func TestQuery_StreamsOfLargeEvents(t *testing.T) {
	p := startPipeline(t)
	honest := p.reads()
	p.compactor.End(os.Interrupt)
	thread := threadsOn(Hostile, "open-", 1, hostilePartitions)[0]
	large := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 14<<20) + `"}`
	records := p.run(Hostile, thread, "r", slices.Repeat([]string{large}, size(100, 20))...)
	p.publish(records[:len(records)-1])
	path := "/v1/threads/" + thread + "/stream"
	from := record.Position{Partition: records[0].Partition, Offset: records[0].Offset}
	a := p.Attacker(Hostile)
	a.Against(p.query, "streams of a run of events of 14 MiB × 40", honest, func(ctx context.Context) {
		atOnce(ctx, 40, func(i int) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // and comes again
			defer cancel()
			a.Send(ctx, http.MethodGet, p.query.URL+[]string{path, path + "?lastEventId=" + url.QueryEscape(from.String())}[i%2], nil)
		})
	}, "200")
}

// Callers that read nothing of large answers.
func TestQuery_AnswersThatNobodyReads(t *testing.T) {
	p := startPipeline(t)
	thread := threadsOn(Hostile, "long-", 1, hostilePartitions)[0]
	var records []*kgo.Record
	for i := range size(10_000, 1_500) {
		records = append(records, p.run(Hostile, thread, fmt.Sprint("run-", i))...)
	}
	p.publish(records)
	honest := p.reads()
	host := strings.TrimPrefix(p.query.URL, "http://")
	request := "GET /v1/threads/" + thread + "/lineage HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + p.Keys[Hostile] + "\r\n\r\n"
	a := p.Attacker(Hostile)
	a.Against(p.query, "lineages that nobody reads × 100", honest, func(ctx context.Context) {
		atOnce(ctx, 100, func(int) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }() // nothing of it is read
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_, err = io.WriteString(conn, request)
			for a.note("not read"); err == nil && ctx.Err() == nil; {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
					_, err = io.WriteString(conn, "\n") // fails once the stage has closed the connection
				}
			}
		})
	}, "not read")
}
