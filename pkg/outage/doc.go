// Package outage makes one account of an API server that is away: why, since when,
// what waits for it, what goes on, and where to look further.
//
// Owns: what the failures of requests mean, and which findings of a node are
// consequences of one cause.
//
// Does not: send requests, nor keep anything. Packages source/kube and report keep
// what they could not read and write, each finding with its cause and since when;
// package node folds them at each look.
package outage
