// Package unpack makes the file system of an image out of its layers (OCI Image
// Layer Specification 1.1).
//
// A layer is whatever its author made of it. Invariants:
//
//   - Everything is made, linked and removed on a descriptor of its directory and
//     by one name there. The directory is found by the kernel, beneath the root and
//     with links in it resolved as if the root were "/" (openat2, RESOLVE_IN_ROOT).
//   - The last name is never followed as a link; what is there is removed first.
//   - No devices, pipes or sockets, no set-user-id bits and no extended attributes
//     are made.
//   - It ends when the root's file system would get too full, or has had too many
//     entries.
package unpack
