// Package state defines the vocabulary of csi-volmgr: what a volume is, what is known
// about it, and what is wanted of it.
//
// It owns the ids, [Phase], [Volume] (the durable record), [Want], [CallError], the paths
// of a node's volumes ([Layout]), and what a gRPC code means ([CodeOf]).
//
// It does not decide anything (pkg/manager/plan does), store anything (internal/journal
// does), call drivers, know Kubernetes types, or read the clock.
//
// Everything is a plain value: a Volume may be copied by assignment, and code that
// changes one of its maps or slices clones it first.
//
// A record never holds the value of a secret, only references to secrets.
package state
