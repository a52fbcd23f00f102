// Package freeze freezes mounted file systems for the duration of a snapshot.
//
// It owns the journal's bucket "frozen", the ioctls FIFREEZE and FITHAW, and the decision
// when a freeze ends. It does not know drivers or snapshots, and mounts nothing.
//
// Invariants:
//   - The intent to freeze is durable before the file system is frozen: the kernel keeps it
//     frozen after the end of the process that asked for it, after the unmount, and at the
//     next mount of the device (measured with ext4 and xfs on Linux 6.1).
//   - A record is removed only when a thaw has succeeded after FIFREEZE returned: a FIFREEZE
//     that waits for a writer succeeds later, and a thaw before that finds nothing to thaw.
//   - Each freeze ends after its limit, whatever its caller does.
//   - csi-volmgr does not end a freeze that it did not make.
//   - A file system that holds the journal, the log or a driver's state is never frozen, nor
//     one that is mounted outside the volume's paths: the thaw would wait for itself.
//
// Concurrency: all methods of [Freezer] may be called from any goroutine.
package freeze
