// Package docs runs what the documentation tells people to type. Every block marked sh in the
// files that it knows is run by bash in the project's folder (in an example's own, for examples), in the order in which it stands,
// against a server of its own; a command that fails, fails the test.
//
// Calls of make are not run, since they would run this test: their targets have to exist.
package docs
