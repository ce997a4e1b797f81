// Package evidence is the proof case of the export artifact: a raw capture of a real integration, the
// artifact that was made of it, and tests that hold both, and the tables of the README, to the code.
package evidence
