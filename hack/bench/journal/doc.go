// Package journal puts three ways to keep the daemon's records on a disk behind one
// interface and one test suite, so that ADR 13 can choose by numbers: bbolt, pebble, and a
// preallocated log of our own.
//
// A store here is the layer below the codec and the group commit of pkg/state: keys and
// values, and a Write that is durable when it returns.
package journal

// Store keeps values by key. It has one writer at a time.
type Store interface {
	// Write makes all changes durable, or none, before it returns. A nil value
	// deletes.
	Write(changes map[string][]byte) error
	// Load returns a copy of all values.
	Load() (map[string][]byte, error)
	// Close releases the files. The values stay.
	Close() error
}
