// Package iscsi is the built-in kind iscsi: a logical unit of an iSCSI target, attached
// by open-iscsi, mounted once on the node and bound into each pod.
//
// Invariants:
//
//   - No secret is on a command line. CHAP names and passwords are written to the
//     records of open-iscsi's database, which are files that only root can read.
//   - All volumes of one target, portal and interface share a session. It ends with the
//     last such volume in the journal, and only if csi-volmgr began it: a session that
//     the node boots from, or that an operator began, stays.
//   - The device is found in sysfs below its session, by its logical unit number. The
//     disk itself says which disk it is (package disk).
//   - No text of a volume reaches a shell or becomes more than one argument.
package iscsi
