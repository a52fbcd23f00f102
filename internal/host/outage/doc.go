// Package outage combines the failures of requests to an unavailable API server into one
// report: the cause, since when it lasts, what waits for the server, what goes on without
// it, and how to investigate.
//
// It owns the meaning of a failed request, the pause after one, the findings of each part
// with their start, and which findings of a node have the same cause.
//
// It does not send requests or wait. Packages source/kube and report each keep Findings of
// what they could not read and write; package cluster folds them when it is queried.
package outage
