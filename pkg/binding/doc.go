// Package binding chooses the PersistentVolume that a claim gets where no cluster does:
// one that a source lists, that no claim has, and that fits.
//
// Owns: which volume fits a claim, which of several a claim gets, and the record of each
// choice.
//
// Does not: make volumes (the controller does), mount them, or bind a cluster's claims.
//
// Invariants:
//   - A choice is durable before a pod is given the volume, and holds until an operator
//     deletes the claim. A claim that vanishes and comes back finds its data again.
//   - A volume is of one claim at a time. That of a deleted claim goes to no other claim
//     until no source lists it: it holds the data of the one before.
//   - A choice is for the storage that the volume named then. A volume of the same name
//     with other storage is another volume.
//   - No choice is made before every source has told what it has.
//
// Concurrency: the methods of [Binder] may be called from any goroutine.
package binding
