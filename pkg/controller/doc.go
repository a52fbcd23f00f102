// Package controller drives the Controller service of CSI drivers where no
// cluster does: it creates, attaches, expands and deletes the volumes of claims, and makes
// and deletes snapshots of volumes. It asks their SnapshotMetadata service which blocks of a
// snapshot hold data, or changed.
//
// Owns: the durable record of each claim and snapshot, every decision about it (next, begin
// and complete, and their like of snapshots, which are pure), the requests and the checks of their answers,
// and the loop that makes the calls.
//
// Does not: read manifests, register drivers, mount anything, or know
// Kubernetes types. What it is told comes as plain values.
//
// Invariants:
//   - The intent of a call is durable before the call is made; a call whose
//     answer was lost is repeated until it is definite.
//   - One call in flight per claim (CSI 1.13, "Concurrency"); CreateSnapshot is one of the
//     volume that it is of.
//   - A volume is deleted because someone said so ([Controller.Delete]) or
//     because it turned out unusable before anybody could use it. Never because
//     a claim is no longer listed. So is a snapshot, by [Controller.DeleteSnapshot].
//   - A record never holds a secret's value, only which secret to read.
//
// Concurrency: all methods of [Controller] may be called from any goroutine.
// Its state is owned by the one that runs [Controller.Run].
package controller
