// Package disk holds what the kinds of volumes on block devices, iscsi and fc, share.
// It finds devices in sysfs, proves which disk they are, makes a file system on a disk
// that is provably empty, mounts it, grows it, and releases the devices.
//
// Invariants:
//
//   - The kernel says what a device is (sysfs and the device's own number). A udev link
//     does not, since it may lag behind.
//   - A disk is identified by its WWID. All paths of a disk have the same WWID, and a
//     staged volume accepts no disk with another WWID.
//   - A file system is made only if the disk's head, its tail and the usual places of
//     signatures were read and contain only zeros, or if an earlier attempt to make one
//     was recorded and the disk has none. The disk is read, not the kernel's cache of it.
//     A disk that cannot be read does not count as blank.
//   - A call on a disk that does not answer does not return, and no signal ends it. So the
//     kinds run in a helper process (package away), and a call that returns after its
//     caller has gone changes nothing more.
//   - A device is removed only if nothing has opened it exclusively: no mount in any
//     namespace, and no device on top of it.
package disk
