// Package controller drives the Controller service of CSI drivers on nodes without a cluster: it
// creates, attaches, expands and deletes the volumes of claims, and creates and deletes snapshots
// of volumes. It asks a driver's SnapshotMetadata service which blocks of a snapshot hold data or
// have changed.
//
// Owns: the durable record of each claim and snapshot, every decision about it (next, begin,
// complete and their counterparts for snapshots, all pure), the requests, the checks of the
// answers, and the loop that makes the calls.
//
// Does not: read manifests, register drivers, mount anything, or know Kubernetes types. Its input
// is plain values.
//
// Invariants:
//   - The intent of a call is durable before the call is made. A call whose answer was lost is
//     repeated until it has a definite answer.
//   - A claim has at most one call in flight (CSI 1.13, "Concurrency"). CreateSnapshot counts as a
//     call of its source volume.
//   - A volume is deleted only because a person asked for it ([Controller.Delete]), never because a
//     claim is no longer listed or because the volume does not fit the claim. The same holds for
//     snapshots ([Controller.DeleteSnapshot]).
//   - A record never contains the value of a secret, only which secret to read.
//
// Concurrency: any goroutine may call the methods of [Controller]. The goroutine that runs
// [Controller.Run] owns its state.
package controller
