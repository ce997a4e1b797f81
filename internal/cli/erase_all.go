package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

// erasedAtOnce limits the concurrent requests for erasures.
const erasedAtOnce = 8

// allErased is the outcome of erasing all threads of a tenant.
type allErased struct {
	// Threads is the number of erased threads; Left is how many threads the index has after that.
	Threads int `json:"threads"`
	Left    int `json:"left"`
	// Each time is the latest of all threads; nil if the time of any thread is unknown.
	erasureTimes
}

// errLeft reports that the index still has threads after the erasure.
var errLeft = errors.New("threads were published, or indexed, meanwhile: stop the tenant's agents, then repeat the command")

// eraseAll erases every thread of the tenant that the index has. It can be interrupted and repeated at any time.
func eraseAll(ctx context.Context, out *output, c *client.Client, ask func(question string) error) error {
	threads, err := threadIDs(ctx, c, url.Values{}, 0)
	if err != nil {
		return fmt.Errorf("listing the threads: %w", err)
	}
	if len(threads) > 0 {
		question := fmt.Sprintf("Erase all %d threads of your tenant at %s? It cannot be undone.", len(threads), c.URL())
		if err := ask(question); err != nil {
			return err
		}
	}
	last, err := requestErasures(ctx, out, c, threads)
	if err != nil {
		return err
	}
	done := allErased{Threads: len(threads)}
	for i, r := range last { // once a partition's last erasure is done, its earlier ones are, too
		_, e, err := awaitErasure(ctx, out, c, r)
		if err == nil && !e.done() {
			err = fmt.Errorf("it is not done after %v and goes on", erasedWithin)
		}
		if err != nil {
			return fmt.Errorf("following the erasure at %s, the last one of its partition: %w; %s shows its progress", r.Position, err,
				c.URL()+r.Href)
		}
		if i == 0 {
			done.erasureTimes = e.erasureTimes
		}
		done.extend(e.erasureTimes)
	}
	left, err := threadIDs(ctx, c, url.Values{}, 0)
	if err != nil {
		return fmt.Errorf("looking whether threads are left: %w", err)
	}
	done.Left = len(left)
	if err = out.result(done, done.text()); err == nil && done.Left > 0 {
		err = fmt.Errorf("%d threads are left: %w", done.Left, errLeft)
	}
	return err
}

// requestErasures requests the erasure of each thread, and returns the last receipt of each partition.
func requestErasures(ctx context.Context, out *output, c *client.Client, threads []string) ([]client.Receipt, error) {
	bar := newProgress(out, "erasing")
	defer bar.end()
	var mu sync.Mutex
	asked := 0
	last, at := map[int32]client.Receipt{}, map[int32]int64{}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(erasedAtOnce)
	for _, thread := range threads {
		work.Go(func() error {
			receipt, err := c.EraseThread(ctx, thread)
			if err != nil {
				return fmt.Errorf("erasing %s: %w; repeat the command for what is left", oneLine(thread, 80), err)
			}
			position, err := record.ParsePosition(receipt.Position)
			if err != nil {
				return fmt.Errorf("erasing %s: %w", oneLine(thread, 80), err)
			}
			mu.Lock()
			defer mu.Unlock()
			asked++
			bar.step(asked, len(threads))
			if has, ok := at[position.Partition]; !ok || position.Offset > has {
				last[position.Partition], at[position.Partition] = receipt, position.Offset
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(last)), nil
}

// extend sets each time to the later of e's and by's; nil if either is nil.
func (e *erasureTimes) extend(by erasureTimes) {
	later := func(have **time.Time, t *time.Time) {
		if *have == nil || t == nil {
			*have = nil
		} else if t.After(**have) {
			*have = t
		}
	}
	later(&e.ErasedAt, by.ErasedAt)
	later(&e.LocalPurgedBy, by.LocalPurgedBy)
	later(&e.CompactedBy, by.CompactedBy)
	later(&e.RawGoneBy, by.RawGoneBy)
}

func (a allErased) text() string {
	if a.Threads == 0 {
		return "the index has no threads\n"
	}
	return fmt.Sprintf("%d threads are erased: no reader gets anything of them any more\n", a.Threads) + a.bounds()
}
