// Package manager is the VolumeManager: it makes the volumes of a node's pods
// be what the pods want, and can say of each why it is not so yet.
//
// Owns: the state of every volume (wishes, records, calls in flight), the order
// journal-then-call-then-look, start-up, waiting, and what others may see.
//
// Does not: decide (pkg/manager/plan does), know Kubernetes, CSI or paths.
//
// Concurrency: one goroutine, [Manager.Run], owns all state: one row a volume, with
// its record, the wishes for it, and what is under way. Other goroutines
// post events to it, which never blocks, and read copies from the snapshot. A
// change marks the volumes that it touches, and only those are planned; there
// is no ticker. One call is in flight per volume; calls of different volumes
// wait for each other only where the limits say so.
package manager
