// Package iscsi is the built-in kind iscsi: a logical unit of an iSCSI target,
// reached through open-iscsi, mounted once on the node and shown to each pod.
//
// Invariants:
//
//   - A secret is on no command line: CHAP names and passwords are written into
//     the records of open-iscsi's database, files that only root reads.
//   - A session is shared by all volumes of one target, portal and interface. It
//     ends with the last that the journal has, and only if it was begun here: one
//     that the node boots from, or that its operator logged in to, stays.
//   - The device is found below its session in sysfs, by its number, and which
//     disk it is, it says itself (package disk).
//   - Nothing that a volume says reaches a shell, or more than one argument.
package iscsi
