// Package freeze holds mounted file systems still for the time of a snapshot.
//
// Owns: the bucket "frozen" of the journal, the ioctls FIFREEZE and FITHAW, and when a freeze ends.
//
// Does not: know drivers or snapshots, or mount anything.
//
// Invariants:
//   - That a file system is about to be frozen is durable before it is: a freeze is the kernel's and
//     outlives the process that asked for it, the unmount, and the next mount of the device
//     (measured with ext4 and xfs on Linux 6.1).
//   - A record goes only when a thaw has succeeded after FIFREEZE had returned: a FIFREEZE that waits
//     for a writer succeeds later, and a thaw before that finds nothing to thaw.
//   - Each freeze ends at the moment that was given, whatever its caller does.
//   - A freeze that csi-volmgr did not make is not ended.
//   - A file system on which the journal, the log or a driver's state lies is never frozen, nor one
//     that anything but the volume has mounted: the thaw would wait for itself.
//
// Concurrency: all methods of [Freezer] may be called from any goroutine.
package freeze
