// Package watch looks at the kernel for what changes behind the manager's back: mounts
// that vanish, file systems that turn read-only, FUSE servers that end, files below a
// missing mount, and directories that pods left.
//
// Owns: when it looks and how often, which FUSE file systems are mounted below the
// root, and which calls share the pool of helpers.
//
// Does not: decide anything about a volume, unmount, or remove a directory with content.
package watch
