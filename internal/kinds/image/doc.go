// Package image is the built-in kind image: the read-only file system of an OCI image,
// from a layout on this node or from the container runtime's image service.
//
// Invariants:
//
//   - If no layout has an image, the runtime's image service is asked for it, following
//     the pull policy. Only the runtime can mount such an image: an empty directory
//     represents the volume, and a note records what the runtime must mount.
//   - An image of a layout is mounted only after each of its blobs was compared with
//     its digest. It is unpacked once for all volumes, in a temporary place, and moved
//     to its final place once it is complete and on disk.
//   - A tree is removed when no volume uses it. Each volume leaves a mark in the tree
//     before it is mounted, and removes the mark after it is unmounted.
//   - A volume is mounted read-only, noexec, nosuid and nodev.
//   - Of the content of a layout, only the digits of a digest become part of a path.
package image
