// Package storetest is the conformance suite of the store contract. Every store runs it:
//
//	storetest.Run(t, func(t testing.TB) storetest.Store { … a new, empty, migrated store … })
//
// A case states what the indexer or the query stage relies on, in terms of the contract only.
package storetest
