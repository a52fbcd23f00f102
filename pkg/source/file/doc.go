// Package file tells the catalog of the objects in a directory of manifests.
//
// Owns: which files count (names ending in .yaml, .yml or .json that do not
// begin with a dot), when one is read, which file holds where several have one
// object (the first by name), and what the last good state of each file was.
//
// Does not: decode (package manifest does), or look into sub-directories. A
// file may be a symbolic link to one in the directory or below it, as in a
// mounted ConfigMap; one that leads out of it is refused.
//
// A file is read when no process has it open for writing: when a writer closed it,
// when it was moved into place, and under a read lease where the file system has
// leases, so that nothing half written is ever taken for the whole. A file that
// cannot be read, or in which anything is wrong, keeps what it had when it was
// last good; so does a file in which no object is left, since that is how a full
// disk leaves it. Objects go when their file is removed, or no longer has them.
// A file that vanishes has a moment to come back, because editors replace files
// so. A directory that cannot be listed, is gone, or was a mount point and is an
// empty directory now, tells nothing: everything is kept.
//
// What each file had when it was last good is durable as well, but for secrets
// (rule 7), which are in the manifests only. So a file that is broken when the
// daemon starts costs none of its pods their volumes.
//
// Invariants: the source has spoken only after a whole directory was read; a
// file that is not good then counts as its last good state. Without a durable
// memory (Config.KV is nil) there is none, and the source waits for the file.
//
// Concurrency: Run owns the files; Problems and Changed may be called at any time.
package file
