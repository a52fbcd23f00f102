// Package localdriver is a real CSI driver (CSI 1.13) for the storage of one
// node: it keeps volumes as sparse image files on loop devices, or as plain
// directories, below one state directory.
//
// # Kinds of volume
//
// The parameter "type" of a StorageClass, or of an inline volume, chooses:
//
//   - "image", the default: a sparse file of exactly the size asked for (rounded
//     up to 4 KiB), on a loop device. The volume is a file system made on it at
//     the first NodeStageVolume (xfs unless fsType says ext4 or btrfs), or the
//     raw block device itself. The size is a real limit. Space is promised only
//     once: what images may still grow by is not offered to others.
//   - "directory": a directory, bind-mounted. Cheap, without any size limit: the
//     capacity asked for is remembered and reported, not enforced.
//
// mkfs.xfs refuses less than 300 MiB because small logs are slow, not because
// the format differs. Smaller volumes are made all the same, with its
// --unsupported flag; the kernel mounts and grows them like any other. Who
// wants only what mkfs.xfs supports asks for 300 MiB or for ext4.
//
// # Growth
//
// ControllerExpandVolume enlarges the image; NodeExpandVolume tells the loop
// device and the mounted file system. Growing a mounted ext4 needs
// CAP_SYS_RESOURCE: without it NodeExpandVolume answers FAILED_PRECONDITION and
// the file system grows at the next NodeStageVolume.
//
// # Snapshots and clones
//
// Both are whole, independent copies: by reflink where the file system below
// the state directory can, else by copying the parts that hold data. A mounted
// file system is frozen while its image is copied without reflink. A raw block
// volume in use cannot be frozen, so without reflink it is refused. A directory
// is copied file by file, which is no single point in time if it is being written.
//
// A group snapshot has copies of several volumes, all or none, and all of one
// moment: where several are in use, every file system among them is frozen before the first is
// copied and thawed after the last, also where reflink makes each copy at once.
// Volumes that are not in use are copied after that.
// A freeze that the orchestrator has made is left to it; one that it ends too
// early fails the call. A directory that is mounted and a raw block volume in use
// cannot be held still, so a group with one is FAILED_PRECONDITION. The members
// are snapshots as any other, except that they come and go with their group.
//
// No freeze of this driver lasts longer than a minute, whatever the copy does: the call
// is FAILED_PRECONDITION then, and leaves nothing. Whether the file system can reflink
// is known before the freeze, by a clone of each image. Without reflink, and with more data
// than is copied within a minute, a volume is copied only while it is not in use.
//
// # Changed blocks
//
// SnapshotMetadata tells which 4 KiB blocks of a snapshot hold data, by the holes of
// its image, and in which blocks two snapshots of a volume differ, by comparing them:
// it reads both, but for the holes of both. Volumes of type directory have no blocks.
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
// A record is durable (written, synced, renamed, directory synced) before the
// side effect it announces, so that after a crash at any point the same call
// finds out what is left to do. A group is one record, so that one write makes
// all of its members ready; one that a crash cut off is begun anew, since its
// volumes have been written to meanwhile. What is attached is written before the mount
// but not synced, because neither survives a reboot: it carries the boot id.
// A device is formatted only if its image holds no data at all, or if a
// durable record says that this driver's own mkfs was interrupted. Loop devices
// of file systems clear themselves with the last user (autoclear), so a killed
// driver leaks none; those of raw block volumes are found again by their image.
//
// # Concurrency
//
// Calls for different volumes run side by side and never wait for each other; a
// second call for a volume, a name, a snapshot or a group in flight is answered ABORTED.
package localdriver
