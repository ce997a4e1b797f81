// Package quota limits what each tenant may take of the HTTP stages: requests, events and bytes a second, streams and
// reads at a time, and the size of an event, an input and a request. The same file has what its open runs may take of the compactor.
//
// Limits come from one YAML file, which is read again when it changes:
//
//	default:
//	  requests_per_second: 200
//	  concurrent_streams: 500
//	tenants:
//	  acme:
//	    events_per_second: 5000
//
// A tenant's limit is the one of its own entry, else the default's, else the stage's. 0 means no limit. Rates are token
// buckets that hold Window's worth, so a tenant may use ten seconds of its rate at once.
//
// Processes do not talk to each other about quotas: each one of N replicas grants an Nth of every limit. A tenant
// whose requests all reach one replica is therefore limited to that share.
package quota
