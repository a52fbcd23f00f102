// Package disk is what the kinds of volumes on block devices share: iscsi and fc.
// It finds devices in sysfs, proves which disk they are, makes a file system
// where there is provably nothing, mounts, grows, and lets devices go.
//
// Invariants:
//
//   - What a device is, the kernel says (sysfs and the device's own number), never
//     a link of udev's, which may lag behind.
//   - A disk is its WWID. Paths of one disk have one WWID, and while a volume is
//     staged no disk of another WWID is taken for it.
//   - A file system is made only on a disk whose ends and usual places of
//     signatures were read and hold nothing but zeros, or on which making one was
//     begun and not finished. What cannot be read is not blank.
//   - A device is removed only when no user has it open for itself: no mount in any
//     namespace and no device above it.
package disk
