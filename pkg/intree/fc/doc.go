// Package fc is the built-in kind fc: a disk on a Fibre Channel network, found
// by the names of its target's ports and its number there, or by its own name,
// mounted once on the node and shown to each pod.
//
// Invariants: everything is read from and told to sysfs; no program but those of
// package disk is run. Only the remote ports of the volume are asked for its
// logical unit. Which disk a device is, it says itself (package disk).
package fc
