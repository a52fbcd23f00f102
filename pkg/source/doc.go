// Package source holds the objects that say which pods want which volumes: the
// [Catalog] merges what all providers tell, and has every pod that a change
// touches resolved anew.
//
// Owns: the objects of all providers, which provider's object holds where
// several have one key, the index from an object to the pods that were resolved
// with it, and the order in which the [Sink] hears of it.
//
// Does not: read files, talk to API servers or decode (its sub-packages do), or
// decide anything about a volume.
//
// Invariants: an object that does not pass [resolve.Check] is never held, and
// does not replace one that did. A pod leaves the sink only when no provider has
// it any longer. The index of a pod is what its resolving looked up, found or not.
//
// Concurrency: safe for concurrent use. Updates are applied one after the other
// and the sink is called while one is; it must not call back into an update.
// Lookups never wait for the sink. Objects handed in and out are shared: nobody
// changes them.
package source
