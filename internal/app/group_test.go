package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestGroup_StopsInReverseOrder(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	g := NewGroup()
	for _, name := range []string{"broker", "stage", "listener"} {
		g.Go(t.Context(), name, func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return ctx.Err()
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(ctx); err != nil {
		t.Fatalf("stopping because told to is no error, got %v", err)
	}
	if want := []string{"listener", "stage", "broker"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestGroup_OneFailureStopsAll(t *testing.T) {
	boom := errors.New("boom")
	g := NewGroup()
	stopped := make(chan struct{})
	g.Go(t.Context(), "broker", func(ctx context.Context) error {
		<-ctx.Done()
		close(stopped)
		return nil
	})
	g.Go(t.Context(), "stage", func(context.Context) error { return boom })
	err := g.Wait(t.Context())
	if !errors.Is(err, boom) || err.Error() != "running stage: boom" {
		t.Errorf("got %v, want the stage's error with its name", err)
	}
	<-stopped
}

func TestGroup_APartThatJustEndsIsAnError(t *testing.T) {
	g := NewGroup()
	g.Go(t.Context(), "stage", func(context.Context) error { return nil })
	if err := g.Wait(t.Context()); err == nil {
		t.Error("a stage that ended without being told to must not look like a clean stop")
	}
}
