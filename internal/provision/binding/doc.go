// Package binding chooses PersistentVolumes for claims where no cluster does: a volume that a
// source lists, that no claim has, and that fits.
//
// Owns: which volume fits a claim, which of several a claim gets, and the record of each choice.
//
// Does not: provision volumes (the controller does), mount them, or bind a cluster's claims.
//
// Invariants:
//   - A choice is durable before a pod gets the volume, and holds until an operator deletes the
//     claim. A claim that vanishes and comes back finds its data again.
//   - A volume belongs to one claim at a time. The volume of a deleted claim is not given to
//     another claim while a source lists it, because it contains the deleted claim's data.
//   - A choice is for the storage that the volume referred to at that time. A volume of the same
//     name with other storage is another volume.
//   - No choice is made before every source has delivered all its objects.
//
// Concurrency: any goroutine may call the methods of [Binder].
package binding
