// Package quota limits how much a directory and all below it may hold, and
// measures how much it does.
//
// The limit is a project quota of xfs or ext4, where the file system is mounted
// with such quotas enforced. Each limited directory has a project id of its own,
// which whatever is made in it inherits. What ids are taken is read from
// /etc/projects, /etc/projid and the file system itself, and which one a
// directory has from a file beside its volume: so an id is no other directory's, and a
// crash between any two steps leaves nothing that the next call does not mend.
//
// A quota holds what grows by mistake. It does not hold who means to get round
// it: outside a user namespace, the owner of a file may give it to another
// project. So a reader who wants to know how much there is measures it.
//
// Does not: know what a volume is, or remove any file but its own record.
//
// Concurrency: all may be called by many goroutines; a Projects is to be the
// only one of its process.
package quota
