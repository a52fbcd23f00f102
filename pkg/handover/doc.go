// Package handover hands a node's volumes from a kubelet to csi-volmgr, and
// back: from what a kubelet leaves on the disk to records of the journal, and
// from records to the files that a kubelet looks for. Nothing is mounted,
// unmounted or asked of a driver by that (docs/adr/0015-adopt-and-release.md).
//
// Owns: what the files mean, which of them are enough to know a volume by, and
// what is refused, with a sentence for each thing.
//
// Does not: read or write a file, look at a mount, or commit a record; package
// handover/disk and pkg/node do.
//
// Everything here is pure. The rules of the files are those of the kubelet's
// CSI plugin, of which vol_data.json is the one thing that it keeps about a
// volume (csi_plugin.go, csi_util.go; JSON objects of strings).
//
// Concurrency: functions of values; any goroutine.
package handover
