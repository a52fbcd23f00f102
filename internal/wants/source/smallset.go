package source

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// smallSet is a set that mostly has one or two keys, such as the users of an object or the members
// of a list. A map of one key has room for eight, which is half a kilobyte for each object of a
// node. A few sets have thousands of keys and do use a map. With maps alone, the peak RSS with
// 1,000 pods is 6 % higher (docs/performance.md).
type smallSet[K comparable] struct {
	list []K        // nil if many is not
	many map[K]bool // used for more than maxList keys
}

// maxList is the size up to which add and remove search linearly.
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

// all iterates over the keys in no particular order. A nil set is empty.
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

// provided is one provider's object.
type provided struct {
	provider string
	object   runtime.Object
}

// byProvider lists the objects under one key, at most one per provider, in no particular order.
type byProvider []provided

// of returns the provider's object, or nil.
func (all byProvider) of(provider string) runtime.Object {
	for _, t := range all {
		if t.provider == provider {
			return t.object
		}
	}
	return nil
}

// with replaces the provider's object by obj, or removes it if obj is nil. It may modify all.
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
