// Package storageid chooses the storage id of this node: what the names have of the node under which a storage
// knows the volumes and snapshots that the node makes. Claims have names that only their node knows, so two
// nodes with one storage would otherwise have one volume for claims of one name.
//
// Owns: the choice, its value in the journal, and the file beside the journal, by which a node that has lost its
// journal finds its volumes again.
//
// Does not: form the names; the controller does.
//
// Invariants:
//   - The id is chosen once, is durable before a name has it, and never changes.
//   - A node that an earlier version used has none for ever: its volumes have names without one.
//   - Of an id that is not known for certain nothing is guessed: an operator says which it is.
//
// Concurrency: any goroutine may call the methods of [Keeper].
package storageid
