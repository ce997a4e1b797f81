// Package tail lets many readers follow threads of skein.events over one read of each partition.
//
//	partition ──▶ one fetch loop ──▶ ring of the latest records, with an index by thread ──▶ any number of Readers
//	                                 older ones: the reader catches up from the log by itself ──▶ Reader
//
// A Tail reads a partition from the moment that somebody follows a thread of it until a while after the last reader
// has left. Its ring keeps the latest records, up to a number of bytes, whether anybody reads them or not: a reader
// that comes later, or comes back with the position where it stopped, finds them there.
//
// A Reader gives the records of one thread in offset order, each once, from any offset on that the log still has. It
// holds no records: one that does not keep up is told so (ErrSlow) once its next record has left the ring, and may
// come back with the offset that it has got to.
package tail
