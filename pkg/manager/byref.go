package manager

// byRef is a map to values of some size. A map keeps room for the most that it ever
// held: with the values in it, as much as a node's largest burst took.
type byRef[K comparable, V any] map[K]*V

// get returns what is under k, the zero value for nothing.
func (m byRef[K, V]) get(k K) (v V, ok bool) {
	if p := m[k]; p != nil {
		return *p, true
	}
	return v, false
}
