// Package state defines the vocabulary of csi-volmgr and its durable memory: what a
// volume is, what is known about it, what is wanted of it, and the journal that keeps the
// first two across a crash.
//
// It owns the ids, [Phase], [Volume] (the durable record), [Want], [CallError], the paths
// of a node's volumes ([Layout]), the versioned record codec, and the journals: [Bolt],
// one bbolt file, and [Memory].
//
// It does not decide anything (pkg/manager/plan does), call drivers, know Kubernetes
// types, or read the clock.
//
// Everything except the journals is a plain value: a Volume may be copied by assignment,
// and code that changes one of its maps or slices clones it first.
//
// A record never holds the value of a secret, only references to secrets.
package state
