// Package watch looks in the kernel for changes that the manager did not make: mounts
// that vanish, file systems that become read-only, FUSE servers that end, files below a
// missing mount, and directories left behind by pods.
//
// Owns: when and how often it looks, which FUSE file systems are mounted below the
// root, and which calls share the pool of helpers.
//
// Does not: decide anything about a volume, unmount, or remove a directory that has
// content.
package watch
