package partition

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

// details are the latest details on skein.runs, by key; the tombstones have "".
func details(runs []*kgo.Record) map[string]string {
	out := map[string]string{}
	for _, m := range runs {
		if partitiontest.IsDetail(m) {
			out[string(m.Key)] = string(m.Value)
		}
	}
	return out
}

func TestPartition_WritesARecordForEachDetailOfAPatch(t *testing.T) {
	s := newSim(t, nil)
	patch := func(thread, value string) { s.SendKind(record.KindThread, thread, "", value) }
	patch("a/b", `{"archived":true,"title":"Zug nach \u004fslo"}`) // of a thread without runs
	s.Turn("r1", "m")
	patch("t", `{"title":"A trip"}`)
	patch("t", `{"title":"The trip"}`)
	s.open(false)
	s.feed(1)
	equal(t, "threads in memory", len(s.part.threads), 0)
	s.all()
	equal(t, "details", details(s.runs), map[string]string{
		"acme/a%2Fb//title": `"Zug nach Oslo"`, "acme/a%2Fb//archived": `true`, "acme/t//title": `"The trip"`,
	})
	patch("a/b", `{"title":null,"archived":false}`)
	s.all()
	equal(t, "details after they were removed", details(s.runs), map[string]string{
		"acme/a%2Fb//title": "", "acme/a%2Fb//archived": "", "acme/t//title": `"The trip"`,
	})
	equal(t, "position", partitiontest.Told(t, s.runs), []int64{6, 7})
	s.open(true) // an empty folder: the local store passes them over
	s.all()
	equal(t, "run", s.run("r1").Status, record.StatusFinished)
	s.proves()
}

// A mirror may end behind an erasure and before the progress record of its transaction: what the erasure covers is read as if it were new.
func TestPartition_RevivesNoDetailWhereAMirrorEndsBehindItsErasure(t *testing.T) {
	s := newSim(t, nil)
	s.SendKind(record.KindThread, "t", "", `{"title":"erased"}`)
	s.SendKind(record.KindErase, "t", "", `{}`)
	s.all()
	n := len(s.runs)
	equal(t, "last record", string(s.runs[n-1].Key), record.ProgressKey)
	s.failOver(n - 1)
	equal(t, "processed", s.committed.Processed, int64(0))
	s.all()
	equal(t, "title", details(s.runs)["acme/t//title"], "")
}

// Read again, a patch is not written again: a later one may have been.
func TestPartition_WritesNoDetailAgain(t *testing.T) {
	s := newSim(t, nil)
	s.Send("other", "o", started("o")) // holds the committed offset
	s.SendKind(record.KindThread, "t", "", `{"title":"first"}`)
	s.SendKind(record.KindThread, "t", "", `{"title":"second"}`)
	s.all()
	equal(t, "C", s.committed.Committed, int64(0))
	before := len(s.runs)
	s.open(true)
	s.feed(2)
	s.commit(true)
	for _, m := range s.runs[before:] {
		if partitiontest.IsDetail(m) {
			t.Errorf("%s is written again: %s", m.Key, m.Value)
		}
	}
}

func TestPartition_ErasesTheDetailsOfAThread(t *testing.T) {
	s := newSim(t, nil)
	s.SendKind(record.KindThread, "t", "", `{"title":"secret","archived":true}`)
	s.SendKind(record.KindThread, "other", "", `{"title":"stays"}`)
	s.all()
	s.SendKind(record.KindThread, "t", "", `{"title":"secret in the same transaction"}`)
	s.Erase("t")
	s.all()
	equal(t, "written of the second title", keysWith("same transaction", s.runs...), []string{})
	want := map[string]string{"acme/t//title": "", "acme/t//archived": "", "acme/other//title": `"stays"`}
	equal(t, "details", details(s.runs), want)
	if n := len(s.runs); string(s.runs[n-2].Key) != "acme/t" {
		t.Error("the erasure record is not after the tombstones")
	}
	s.SendKind(record.KindThread, "t", "", `{"title":"a new thread"}`)
	s.all()
	want["acme/t//title"] = `"a new thread"`
	equal(t, "details of the thread that came after it", details(s.runs), want)
}

// What a producer writes to Kafka itself may be anything.
func TestPartition_AMalformedPatchIsADeadLetter(t *testing.T) {
	s := newSim(t, nil)
	for _, value := range []string{``, `not JSON`, `{}`, `{"title":7}`, `{"title":"a\nb"}`, `{"color":"red"}`, `{"archived":null}`} {
		s.SendKind(record.KindThread, "t", "", value)
	}
	s.all()
	equal(t, "dead letters", s.letters(), []string{
		"0:0 malformed", "0:1 malformed", "0:2 malformed", "0:3 malformed", "0:4 malformed", "0:5 malformed", "0:6 malformed",
	})
	equal(t, "details", len(details(s.runs)), 0)
}

func TestPartition_APatchDoesNotKeepARunAlive(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	s.all()
	for range 4 {
		s.Now = s.Now.Add(s.cfg.IdleLimit / 3)
		s.SendKind(record.KindThread, "t", "", `{"archived":true}`)
		s.all()
	}
	s.Now = s.Now.Add(time.Second)
	s.commit(true)
	equal(t, "status", s.run("r").Status, record.StatusAbandoned)
}
