// Package mount is what csi-volmgr does with the kernel's mounts, by direct
// system calls: make, change, remove and identify them, and remove directory
// trees without ever crossing one.
//
// Owns: [Kernel] with its verbs, the mount table as [Entry] values, and
// [Mounter], which gives the verbs the shape of k8s.io/mount-utils.
//
// Does not: know volumes, make file systems, or start processes, but for the
// mounts that [Mounter] hands to mount(8) because they need a helper (nfs, cifs).
//
// Paths (rule 8): a path is absolute. It is resolved once, to a descriptor of
// its directory, and the work is done on descriptors; no element of it may be a
// symbolic link (ELOOP), and the last is never followed. Only the roots given
// to [New] may themselves be reached through links.
//
// Kernels: where the running kernel lacks a call, an older one does the same
// work; [Feature] says which, and what is lost.
//
// Concurrency: a Kernel may be used by many goroutines. Different calls on one
// path are not ordered among each other; whoever needs that, as the manager does
// by its one call per volume, orders them. A call that takes a context and hangs
// is left behind when the context ends (rule 9).
package mount
