// Package image is the built-in kind image: the file system of an OCI image,
// read-only, from a layout on this node or by the service that has the
// container runtime's images.
//
// Invariants:
//
//   - What no layout has the runtime's image service is asked for, by the pull
//     policy. Only the runtime can mount that: an empty directory stands for the
//     volume, and what the runtime is to mount is remembered.
//   - A layout's image is shown only when every blob of it was compared with its
//     digest. It is unpacked once for all volumes, in a place of its own, and moved
//     to where it is used when it is whole and on disk.
//   - A tree is removed when no volume has it: each leaves a mark in it before it
//     is mounted, and takes it away when it is unmounted.
//   - A volume is read-only, without programs to be run, set-user-id bits and
//     devices.
//   - What a layout says reaches no path but as the digits of a digest.
package image
