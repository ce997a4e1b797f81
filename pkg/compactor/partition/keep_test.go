package partition

import (
	"fmt"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// ofEachFamily sends one event of each family.
func (s *sim) ofEachFamily(run string) {
	s.tb.Helper()
	for _, value := range []string{
		`{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"SUBAGENT_STARTED","subagentRunId":"sub","name":"n"}`,
		custom("c"), `{"type":"META","metaType":"m","payload":1}`, `{"type":"SOMETHING_NEW"}`, `{"type":"RAW","event":1}`,
	} {
		s.Send("t", run, value)
	}
}

// keptTypes are the types of a record's kept events.
func (s *sim) keptTypes(run string) string {
	s.tb.Helper()
	types := []agui.Type{}
	for _, e := range s.run(run).Events {
		typ, err := agui.Envelope(e)
		s.check(err)
		types = append(types, typ)
	}
	return fmt.Sprint(types)
}

func mustFamilies(tb testing.TB, names ...string) agui.Families {
	tb.Helper()
	f, err := agui.FamiliesOf(names...)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestPartition_KeepsTheFamiliesThatAreAskedFor(t *testing.T) {
	const all = "[STEP_STARTED SUBAGENT_STARTED CUSTOM META SOMETHING_NEW RAW]"
	for _, c := range []struct {
		kept agui.Families
		want string
	}{
		{0, "[STEP_STARTED SUBAGENT_STARTED CUSTOM META SOMETHING_NEW]"},
		{mustFamilies(t), "[]"},
		{mustFamilies(t, "step"), "[STEP_STARTED]"},
		{mustFamilies(t, "subagent"), "[SUBAGENT_STARTED]"},
		{mustFamilies(t, "custom"), "[CUSTOM]"},
		{mustFamilies(t, "meta"), "[META]"},
		{mustFamilies(t, "unknown"), "[SOMETHING_NEW]"},
		{mustFamilies(t, "raw"), "[RAW]"},
		{mustFamilies(t, agui.FamilyNames()...), all},
	} {
		s := newSim(t, func(cfg *Config) { cfg.KeepEvents = c.kept })
		s.Send("t", "r", started("r"))
		s.ofEachFamily("r")
		s.Send("t", "r", finished("r"))
		s.all()
		equal(t, "kept with "+c.kept.String(), s.keptTypes("r"), c.want)
		equal(t, "the record says of "+c.kept.String(), s.run("r").Kept, c.kept)
		equal(t, "types counted with "+c.kept.String(), len(s.run("r").Stats.Events), 8)
	}
}

// A run keeps what was set when it began: its record is what its events make, whenever somebody folds
// them again.
func TestPartition_KeepsWhatWasSetWhenTheRunBegan(t *testing.T) {
	s := newSim(t, func(cfg *Config) { cfg.KeepEvents = mustFamilies(t, "raw") })
	s.Send("t", "r", started("r"))
	s.ofEachFamily("r")
	s.open(false)
	s.feed(len(s.Events))
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	equal(t, "the checkpoint", s.keptTypes("r"), "[RAW]")

	s.cfg.KeepEvents = mustFamilies(t, "custom")
	s.open(false) // started anew with the other setting
	s.ofEachFamily("r")
	s.Send("t", "r", finished("r"))
	s.Send("t", "next", started("next"))
	s.ofEachFamily("next")
	s.Send("t", "next", finished("next"))
	s.all()
	equal(t, "the run that was open", s.keptTypes("r"), "[RAW RAW]")
	equal(t, "what its record says", s.run("r").Kept, mustFamilies(t, "raw"))
	equal(t, "the run behind it", s.keptTypes("next"), "[CUSTOM]")
	equal(t, "what its record says", s.run("next").Kept, mustFamilies(t, "custom"))
}
