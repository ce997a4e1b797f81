package partition

import (
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// setDetails writes a record for each detail that a patch names. It reads none of them, and keeps nothing of the thread: the last record of
// a key counts.
//
// Below the processed offset it writes nothing, as the details were written before. What an erasure covers is below that offset, too, but
// not where a mirror of skein.runs has the erasure and not the progress record of its transaction.
func (p *Processor) setDetails(m *message) (fold.Outcome, error) {
	details, err := record.DecodePatch(m.Value)
	switch {
	case err != nil:
		return p.deadLetter(m, deadletter.Malformed, err.Error())
	case m.rebuilds:
		return outcomeDetails, nil
	}
	erased, err := p.store.Thread(string(m.Key)).ErasedBelow()
	if err != nil {
		return "", err
	}
	if m.Offset < erased {
		return outcomeErased, nil
	}
	for _, d := range details {
		p.writeDetail(string(m.Key), d)
	}
	return outcomeDetails, nil
}

// writeDetail writes a detail of the thread with this key, or its tombstone.
func (p *Processor) writeDetail(thread string, d record.Detail) {
	key := record.DetailKeyOf(thread, d.Name)
	if d.Value == "" {
		p.write(p.tombstone(p.topics.Runs, record.KindThread, key))
		return
	}
	p.write(Output{Kind: outputDetail, Record: p.record(p.topics.Runs, key, record.EncodeDetail(d), record.KindThread, "")})
}
