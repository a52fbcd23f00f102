// Package journal is the durable memory of a node: which volumes it has, what is known
// about each, and what other rooms keep in buckets of their own, across a crash.
//
// It owns the versioned record codec and the journals: [Bolt], one bbolt file with a
// spare copy and a checksum of each bucket, and [Memory]. It alone opens a database.
//
// It does not know what a record means beyond its phases: a doubted fact is entering, and
// a change that begins something needs room on the disk.
package journal
