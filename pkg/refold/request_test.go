package refold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/refold"
)

// Nobody decides where no compactor is: the group is misspelt, or they are not running.
func TestAwait_EndsWhereNobodyIsThere(t *testing.T) {
	kafkatest.OnBoth(t, 1, func(t *testing.T, cfg kafka.Config) {
		group := cfg.CompactorGroup()
		requests := []refold.Request{{Tenant: "acme", ThreadID: "t"}}
		if err := refold.Send(t.Context(), cfg, requests); err != nil {
			t.Fatal(err)
		}
		member, err := kafka.NewGroupReader(cfg, kafka.GroupOptions{Group: group, Topics: []string{cfg.Topics().Events}})
		if err != nil {
			t.Fatal(err)
		}
		defer member.CloseAllowingRebalance()
		if fetched := member.PollFetches(t.Context()); fetched.Err() != nil {
			t.Fatal(fetched.Err())
		}
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		// Somebody is there, and takes longer.
		err = refold.Await(ctx, cfg, group, requests, time.Millisecond, func(int, int) {
			if looks++; looks == 5 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, refold.ErrNoCompactor) {
			t.Errorf("with a member it is %v", err)
		}

		member.CloseAllowingRebalance()
		// Somebody is there, of another stage.
		indexer, err := kafka.NewGroupReader(cfg, kafka.GroupOptions{Group: group + "-of-another-stage", Topics: []string{cfg.Topics().Runs}})
		if err != nil {
			t.Fatal(err)
		}
		defer indexer.CloseAllowingRebalance()
		adm, err := kafka.NewAdmin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer adm.Close()
		for state := ""; state != "Stable"; {
			described, err := adm.DescribeGroups(t.Context(), group+"-of-another-stage")
			if err != nil {
				t.Fatal(err)
			}
			state = described[group+"-of-another-stage"].State
		}
		for _, none := range []string{group, group + "-misspelt", group + "-of-another-stage"} {
			err := refold.Await(t.Context(), cfg, none, requests, time.Millisecond, nil)
			if !errors.Is(err, refold.ErrNoCompactor) || !strings.Contains(err.Error(), none+": 0 of 1 requests") {
				t.Errorf("in a group of nobody it is %v", err)
			}
		}
		decided := kadm.Offsets{}
		decided.AddOffset(cfg.Topics().Events, requests[0].Position.Partition, requests[0].Position.Offset+1, -1)
		if err := adm.CommitAllOffsets(t.Context(), group, decided); err != nil {
			t.Fatal(err)
		}
		if err := refold.Await(t.Context(), cfg, group, requests, time.Millisecond, nil); err != nil {
			t.Errorf("once it is decided it is %v", err)
		}
	})
}
