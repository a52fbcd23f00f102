// Package fc is the built-in kind fc: a disk on a Fibre Channel network, found by its
// target's port names and its logical unit number, or by its own name. It is mounted
// once on the node and bound into each pod.
//
// Invariants: fc reads and writes only sysfs and runs no programs except those of
// package disk. It asks only the volume's remote ports for its logical unit. The disk
// itself says which disk it is (package disk).
package fc
