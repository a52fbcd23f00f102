// Package unpack makes the file system of an image from its layers (OCI Image Layer
// Specification 1.1).
//
// A layer's author is not trusted. Invariants:
//
//   - Every file is made, linked and removed by one name on a descriptor of its
//     directory. The kernel finds the directory beneath the root and resolves links as
//     if the root were "/" (RESOLVE_IN_ROOT of openat2).
//   - The last name is never followed as a link; an existing file there is removed
//     first.
//   - No devices, pipes or sockets, no set-user-id bits and no extended attributes are
//     made.
//   - Unpacking stops if the root's file system would become too full, or if there are
//     too many entries.
package unpack
