// Package state is the vocabulary of csi-volmgr and its memory: what a volume
// is, what is known of it, what is wanted of it, and the journal that keeps
// the first two across a crash.
//
// Owns: the ids, [Phase], [Volume] (the durable record), [Want], [CallError],
// the paths of a node's volumes ([Layout]), the record codec with its
// versions, and the journal (one bbolt file) beside an in-memory one.
//
// Does not: decide (that is pkg/manager/plan), call drivers, know Kubernetes
// types, or read the clock.
//
// Everything here but the journals is a plain value: a Volume may be copied by
// assignment, and code that changes one of its maps or slices clones it first.
//
// A record never holds a secret's value; it holds references to secrets.
package state
