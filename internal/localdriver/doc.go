// Package localdriver is a CSI driver (CSI 1.13) for the storage of one node. It stores volumes as
// sparse image files on loop devices, or as plain directories, in one state directory.
//
// # Kinds of volume
//
// The parameter "type" of a StorageClass, or of an inline volume, selects the kind:
//
//   - "image", the default: a sparse file of exactly the requested size (rounded up to 4 KiB) on a
//     loop device. The volume is a file system, made at the first NodeStageVolume (xfs, ext4 or
//     btrfs, as fsType says; without fsType xfs, or ext4 where mkfs.xfs is not installed), or the
//     raw block device itself. The size is a real limit. Space is reserved: what an image may still
//     grow by is not available to other images.
//   - "directory": a bind-mounted directory. It is cheap and has no size limit: the requested
//     capacity is recorded and reported, but not enforced.
//
// mkfs.xfs refuses sizes below 300 MiB because small logs are slow, not because the format differs.
// The driver makes smaller volumes with its --unsupported flag; the kernel mounts and grows them
// like any other. Users who want only what mkfs.xfs supports request 300 MiB or ext4.
//
// # Growth
//
// ControllerExpandVolume enlarges the image; NodeExpandVolume enlarges the loop device and the
// mounted file system. Growing a mounted ext4 needs CAP_SYS_RESOURCE: without it NodeExpandVolume
// answers FAILED_PRECONDITION, and the file system grows at the next NodeStageVolume.
//
// # Snapshots and clones
//
// Both are complete, independent copies: made by reflink if the file system of the state directory
// supports it, else by copying the parts that hold data. Without reflink, a mounted file system is
// frozen while its image is copied, and a raw block volume in use is refused because it cannot be
// frozen. A directory is copied file by file; if it is being written meanwhile, the copy shows no
// single point in time. The copy follows no link that a pod puts there; Linux before 5.14 cannot
// prevent that, so there a mounted directory is refused.
//
// A group snapshot contains copies of several volumes, all or none, and all of one moment: if
// several are in use, all their file systems are frozen before the first is copied and thawed after
// the last, even if reflink makes each copy atomic. Volumes that are not in use are copied after
// that. If the orchestrator has frozen a file system, the driver leaves the freeze to it, and the
// call fails if that freeze ends too early. A mounted directory and a raw block volume in use
// cannot be frozen, so a group that contains one fails with FAILED_PRECONDITION. The members are
// normal snapshots, except that they are created and deleted with their group.
//
// No freeze by this driver lasts longer than a minute, even if the copy hangs: the call then fails
// with FAILED_PRECONDITION and leaves nothing behind. The driver finds out before the freeze
// whether the file system supports reflink, by cloning each image. Without reflink, a volume with
// more data than can be copied in a minute is copied only while it is not in use.
//
// # Changed blocks
//
// SnapshotMetadata reports which 4 KiB blocks of a snapshot hold data, from the holes of its image,
// and which blocks differ between two snapshots of a volume, by comparing them: it reads both
// images except where both have holes. Volumes of type directory have no blocks.
//
// # Owns
//
// The state directory, under a lock, and the loop devices of the images in it.
//
//	records/<volume>.json      what a volume is; durable before it exists
//	snapshots/<snapshot>.json  the same of a snapshot
//	groups/<group>.json        the same of a group snapshot and of its members
//	data/<id>[.img]            the bytes of either
//	attached/<volume>.json     where a volume is staged and published
//
// # Invariants
//
// A record is durable (written, synced, renamed, directory synced) before the side effect that it
// announces, so that after a crash at any point the same call can find out what is left to do. A
// group is one record, so that one write makes all its members ready. A group that a crash
// interrupted is made again from the start, because its volumes may have been written since.
// Attachments are written before the mount but not synced, because neither survives a reboot: they
// contain the boot id. A device is formatted only if its image holds no data at all, or if a
// durable record says that this driver's own mkfs was interrupted. A full disk prevents no unmount and
// no deletion: their records are then only in memory. Loop devices of file systems are
// detached by the kernel with their last user (autoclear), so a killed driver leaks none; those of
// raw block volumes are found by their image.
//
// # Concurrency
//
// Calls for different volumes run concurrently and do not wait for each other. A call is answered
// ABORTED if another call for the same volume, name, snapshot or group is in flight.
package localdriver
