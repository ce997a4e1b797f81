// Package usage counts what tenants take, as metrics that have a label for each of the largest tenants and one for all others
// together: their number is bounded, however many tenants there are.
package usage
