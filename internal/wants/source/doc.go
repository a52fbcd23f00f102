// Package source holds the objects that say which pods want which volumes. The [Catalog] merges the
// objects of all providers and resolves again every pod that a change affects.
//
// Owns: the objects of all providers, which provider's object is the effective one if several have
// the same key, the index from an object to the pods that were resolved with it, and the order in
// which the [Sink] receives wants.
//
// Does not: read files, talk to API servers or decode (its sub-packages do), or decide anything
// about a volume.
//
// Invariants: an object that fails [resolve.Check] is never stored and never replaces one that
// passed. A pod leaves the sink only when no provider has it any longer, or when another provider owns
// its key ([Catalog.Own]). The index of a pod
// contains every key that resolving it looked up, whether or not there was an object.
//
// Concurrency: safe for concurrent use. Updates are applied one after the other. The sink is called
// during an update and must not start another. Lookups never wait for the sink. Objects are shared
// with callers and must not be modified.
package source
