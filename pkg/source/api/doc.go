// Package api keeps the objects that were applied through the node's API
// (`csi-volmgr apply`) and tells the catalog of them.
//
// Owns: the bucket "objects" of the journal, one object each (manifest.Keep), and
// the directory of applied secrets.
//
// Does not: decode what a client sends (package manifest does), or serve.
//
// Invariants: an object is durable before it takes effect, and its deletion is.
// An object that cannot be read at start stays where it is, is a problem that
// Problems lists, and keeps the source from having spoken until it is deleted
// or applied anew: nothing that it wanted may be taken away for want of it.
//
// Secrets are not in the journal. The client that applies a Secret asks for it to be
// kept, since pods need it again after a restart; so it is in a file of its own,
// mode 0600, in a directory made for that (mode 0700), and in no other place:
// the journal's pages are copied about, and go on holding what was deleted,
// until they happen to be used again. The file is not encrypted; who can read
// root's files can read it. A tmpfs there keeps secrets off the disk, and they
// then have to be applied again after a reboot. With no directory configured
// they are in memory only.
//
// Concurrency: safe for concurrent use; changes are made one after the other.
package api
