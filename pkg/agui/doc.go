// Package agui holds the AG-UI 1.0 vocabulary: events, messages and run inputs, decoded without
// losing a byte. Unknown event types, unknown fields, the text of numbers and the order of members
// stay as they came, because a store that rewrites what agents said cannot prove what it holds.
//
// The package is a leaf: it imports the standard library only.
package agui
