// Package mount makes, changes, removes and identifies the kernel's mounts by direct
// system calls, and removes directory trees without ever crossing a mount.
//
// It owns [Kernel] and its methods, the mount table as [Entry] values, and [Mounter],
// which adapts a Kernel to k8s.io/mount-utils.
//
// It does not know volumes, make file systems, or start processes, except for mounts that
// [Mounter] hands to mount(8) because they need a helper (nfs, cifs).
//
// Paths (rule 8): a path is absolute. It is resolved once, to a descriptor of its
// directory, and the work is done on descriptors; no element of it may be a symbolic link
// (ELOOP), and the last is never followed. Only the roots given to [New] may themselves
// be reached through links.
//
// Kernels: if the running kernel lacks a system call, an older one does the same work;
// [Feature] lists these calls and what is lost without each.
//
// Concurrency: many goroutines may use a Kernel. It does not order different calls on one
// path; callers that need an order establish it, as the manager does with one call per
// volume. A call that takes a context and hangs is abandoned when the context ends (rule
// 9).
package mount
