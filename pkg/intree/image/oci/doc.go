// Package oci reads images from layouts of the OCI Image Layout Specification
// 1.1: directories, and tar archives of such directories.
//
// Invariants: nothing outside a layout is opened, whatever links it has. What is
// returned of a blob was compared with its digest and size, or is by
// [Blob.Verify]. What a layout says is bounded before it is read.
package oci
