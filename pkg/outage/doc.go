// Package outage makes one account of an API server that is away: why, since when,
// what waits for it, what goes on, and where to look further.
//
// Owns: what the failures of requests mean, how long to wait after one, which findings a
// part has since when, and which findings of a node are consequences of one cause.
//
// Does not: send requests, or wait. Packages source/kube and report each have Findings of
// what they could not read and write; package cluster folds them at each look.
package outage
