// Package tail lets many readers follow threads of skein.events over one read of each partition.
//
//	partition ──▶ one fetch loop ──▶ ring of the latest records, with an index by thread ──▶ any number of Readers
//	                                 older records: the reader catches up from the log by itself ──▶ Reader
//
// A Tail reads a partition while any of its threads has a reader, and for a while after the last one has left. The ring
// keeps the latest records of all threads, up to a number of bytes: a reader that joins later, or resumes at the offset
// where it stopped, finds them there.
//
// A Reader returns the records of one thread in offset order, each once, from any offset that the log still has. It
// buffers no records: if its next record has left the ring because it did not keep up, it ends with ErrSlow, and a new
// reader may continue from the same offset.
package tail
