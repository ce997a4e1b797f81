// Package quota limits each tenant's use of the HTTP stages: requests, events and bytes a second, concurrent streams and
// reads, and the size of an event, an input and a request. The same file also limits the tenant's open runs in the
// compactor.
//
// The limits are in one YAML file, which is read again whenever it changes:
//
//	default:
//	  requests_per_second: 200
//	  concurrent_streams: 500
//	tenants:
//	  acme:
//	    events_per_second: 5000
//
// A tenant's limit comes from its own entry, else from the default, else from the stage. 0 means no limit. Rates are token
// buckets with a capacity of Window, so a tenant may use ten seconds of its rate at once.
//
// Processes do not coordinate quotas: each of N replicas grants 1/N of every limit. A tenant whose requests all reach
// one replica therefore gets only 1/N.
package quota
