// Package quota limits how much a directory tree may hold, and measures how much it
// holds.
//
// The limit is a project quota of xfs or ext4; the file system must be mounted with
// such quotas enforced. Each limited directory gets its own project ID, which
// everything made in it inherits. /etc/projects, /etc/projid and the file system say
// which IDs are taken, and a file next to the volume records the directory's ID. So no
// two directories share an ID, and after a crash between any two steps the next call
// repairs what was left.
//
// A quota stops accidental growth. It does not stop a user who wants to evade it:
// outside a user namespace, a file's owner may move the file to another project.
// Callers that need the true size must measure it.
//
// Does not: know what a volume is, or remove any file except its own record.
//
// Concurrency: everything is safe for concurrent use; there must be only one Projects
// per process.
package quota
