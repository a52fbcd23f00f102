// Package oci reads images from layouts of the OCI Image Layout Specification 1.1:
// directories, and tar archives of such directories.
//
// Invariants: nothing outside a layout is opened, whatever links it has. Documents are
// compared with their digest and size before they are used; layers are compared by
// [Blob.Verify]. Sizes and counts in a layout are checked against limits before it is
// read.
package oci
