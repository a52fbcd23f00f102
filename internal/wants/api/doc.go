// Package api stores the objects that were applied through the node's API (`csi-volmgr apply`) and
// delivers them to the catalog.
//
// Owns: the bucket "objects" of the journal, with one entry per object (manifest.Keep), and the
// directory of applied secrets.
//
// Does not: decode what a client sends (package manifest does), or serve the API.
//
// Invariants: an object, or its deletion, is durable before it takes effect. An object that cannot
// be read at start stays stored and appears in Problems until it is deleted or applied again. A pod
// of that kind keeps the source from having spoken: otherwise volumes that it wants would be removed.
// The catalog knows the others by their keys, so that they do not count as absent.
//
// Secrets are not in the journal. A client that applies a Secret wants it stored, since pods need
// it again after a restart. So each secret is in its own file with mode 0600, in its own directory
// with mode 0700, and nowhere else: the journal's pages are copied, and still contain deleted data
// until they are reused. The file is not encrypted; anyone who can read root's files can read it. A
// tmpfs as the directory keeps secrets off the disk, but they must be applied again after a reboot.
// Without a directory, secrets are in memory only.
//
// Concurrency: safe for concurrent use; changes are made one after the other.
package api
