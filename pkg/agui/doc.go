// Package agui decodes the vocabulary of AG-UI 1.0 without losing a byte: events, messages and run inputs. Unknown event types
// and fields, the text of numbers and the order of members stay unchanged, because a store that rewrites what agents sent cannot
// prove what it holds.
//
// The package is a leaf: it imports the standard library only.
package agui
