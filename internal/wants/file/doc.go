// Package file delivers the objects in a directory of manifests to the catalog.
//
// Owns: which files are manifests (names ending in .yaml, .yml or .json that do not begin with a
// dot), when one is read, which file's object is used if several files have the same one (the first
// by name), and each file's last good state.
//
// Does not: decode (package manifest does), or look into sub-directories. A file may be a symbolic
// link to one in the directory or below it, as in a mounted ConfigMap; a link that leads out of the
// directory is rejected.
//
// A file is read while no process has it open for writing: after a writer closed it, after it was
// moved into place, and under a read lease if the file system has leases. So a half-written file is
// never mistaken for a whole one. A file that cannot be read or has any error keeps its last good
// objects; so does a file without objects, since a full disk truncates files. Objects are deleted
// when their file is removed or no longer contains them. A file that vanishes has a moment to come
// back, because editors replace files that way. A directory that cannot be listed, does not exist,
// or was a mount point and is now an empty directory changes nothing: all objects stay, and the
// directory is read again until that succeeds.
//
// The last good state of each file is also stored durably, except for its secrets, which are only
// in the manifests (rule 7). So a file that is broken when the daemon starts does not cost its pods
// their volumes.
//
// Invariants: the source has spoken only after it read a whole directory; files with errors count
// with their last good state. Without durable storage (Config.KV is nil), the source waits for
// them.
//
// Concurrency: Run owns the files; Problems and Changed may be called at any time.
package file
