// Package usage counts the use of each tenant as metrics. The largest tenants have a label each, all others share one,
// so the number of labels is bounded for any number of tenants.
package usage
