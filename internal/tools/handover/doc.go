// Package handover transfers a node's volumes from a kubelet to csi-volmgr and back: it converts
// what a kubelet leaves on the disk to journal records, and records to the files that a kubelet
// looks for. A transfer mounts and unmounts nothing and calls no driver
// (docs/adr/0015-adopt-and-release.md).
//
// Owns: the meaning of the files, which of them suffice to identify a volume, and the refusals,
// with a sentence for each.
//
// Does not: read or write a file, look at a mount, or commit a record; packages handover/disk and
// handover/takeover do.
//
// Everything here is pure. The files follow the rules of the kubelet's CSI plugin, which stores
// only vol_data.json about a volume (csi_plugin.go, csi_util.go; JSON objects of strings).
//
// Concurrency: the functions only use their arguments; any goroutine may call them.
package handover
