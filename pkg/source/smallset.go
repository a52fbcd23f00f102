package source

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// smallSet is a set of mostly one or two: what uses an object, what is in a list. A map
// of one key has room for eight, half a kilobyte for each object of a node. What
// every pod uses has thousands of users, and they are in a map. With maps alone the peak
// RSS with 1,000 pods is 6 % higher (docs/performance.md).
type smallSet[K comparable] struct {
	list []K        // while many is nil
	many map[K]bool // of more than maxList
}

// maxList is how many keys are looked through one by one.
const maxList = 8

func (s *smallSet[K]) add(k K) {
	switch {
	case s.many != nil:
		s.many[k] = true
	case slices.Contains(s.list, k):
	case len(s.list) < maxList:
		s.list = append(s.list, k)
	default:
		s.many = map[K]bool{k: true}
		for _, other := range s.list {
			s.many[other] = true
		}
		s.list = nil
	}
}

func (s *smallSet[K]) remove(k K) {
	if s.many != nil {
		delete(s.many, k)
	} else if i := slices.Index(s.list, k); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

func (s *smallSet[K]) empty() bool { return len(s.list)+len(s.many) == 0 }

// all visits the keys in no order. A nil set has none.
func (s *smallSet[K]) all() iter.Seq[K] {
	return func(yield func(K) bool) {
		if s == nil {
			return
		}
		for _, k := range s.list {
			if !yield(k) {
				return
			}
		}
		for k := range s.many {
			if !yield(k) {
				return
			}
		}
	}
}

func addTo[K, V comparable](m map[K]*smallSet[V], k K, v V) {
	if m[k] == nil {
		m[k] = &smallSet[V]{}
	}
	m[k].add(v)
}

func removeFrom[K, V comparable](m map[K]*smallSet[V], k K, v V) {
	s := m[k]
	if s == nil {
		return
	}
	if s.remove(v); s.empty() {
		delete(m, k)
	}
}

// provided is an object as one provider has it.
type provided struct {
	provider string
	object   runtime.Object
}

// byProvider are the objects under one key, one of each provider, in no order.
type byProvider []provided

// of returns the provider's object, nil for none.
func (all byProvider) of(provider string) runtime.Object {
	for _, t := range all {
		if t.provider == provider {
			return t.object
		}
	}
	return nil
}

// with returns all with the provider's object replaced by obj, nil for none.
func (all byProvider) with(provider string, obj runtime.Object) byProvider {
	i := slices.IndexFunc(all, func(t provided) bool { return t.provider == provider })
	switch {
	case obj == nil && i < 0:
		return all
	case obj == nil:
		return slices.Delete(all, i, i+1)
	case i >= 0:
		all[i].object = obj
		return all
	}
	return append(all, provided{provider, obj})
}
