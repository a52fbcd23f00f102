package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// shelf is a server with volumes v0, v1, ...: a list takes a second a page, a get takes two.
type shelf struct {
	volumes, page int
	err           error // returned by lists
	expires       bool  // every continue token does

	mu    sync.Mutex
	lists []string // where each page began
	begun int      // number of lists
	gets  []string
}

func (s *shelf) list(string) listFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		s.mu.Lock()
		s.lists = append(s.lists, o.Continue)
		if o.Continue == "" {
			s.begun++
		}
		version := fmt.Sprint("list ", s.begun)
		s.mu.Unlock()
		if err := sleep(ctx, time.Second); err != nil || s.err != nil {
			return nil, errors.Join(err, s.err)
		}
		if s.expires && o.Continue != "" {
			return nil, apierrors.NewResourceExpired("the provided continue parameter is too old")
		}
		from := 0
		_, _ = fmt.Sscan(o.Continue, &from)
		l := &corev1.PersistentVolumeList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for i := from; i < min(s.volumes, from+s.page); i++ {
			l.Items = append(l.Items, corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("v", i)}})
		}
		if from+s.page < s.volumes {
			l.Continue = fmt.Sprint(from + s.page)
		}
		return l, nil
	}
}

// read asks for a volume and returns the request that brought its answer.
func (s *shelf) read(t *testing.T, g *gather, name string) string {
	obj, version, err := g.read(t.Context(), source.Key{Kind: resolve.KindVolume, Name: name}, func(ctx context.Context) (runtime.Object, string, error) {
		s.mu.Lock()
		s.gets = append(s.gets, name)
		s.mu.Unlock()
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, "got", sleep(ctx, 2*time.Second)
	})
	if err != nil || obj.(*corev1.PersistentVolume).Name != name {
		t.Errorf("%s: %v, %v", name, obj, err)
	}
	return version
}

// readAll asks for n volumes at once and returns how many answers came from a list.
func (s *shelf) readAll(t *testing.T, g *gather, n int) (listed int) {
	from := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { from[i] = s.read(t, g, fmt.Sprint("v", i)) })
	}
	all.Wait()
	for _, f := range from {
		if f != "got" {
			listed++
		}
	}
	return listed
}

// If a list cannot continue, because it is forbidden or its continue token has expired (410), the provider reads the
// rest one by one and does not list again.
//
// Faults: A220.
func TestManyObjectsAreListedAndFewAreNot(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for _, tc := range []struct {
		name  string
		shelf *shelf
		ask   int
		// listed is the least number of answers from lists, lists the largest number of lists. Requests that arrive
		// during a list wait for the next one.
		listed, lists int
	}{
		{"few", &shelf{volumes: 100, page: 100}, gatherAt, 0, 0},
		{"many, on several pages", &shelf{volumes: 400, page: 150}, 300, 200, 2},
		{"some that the list has not", &shelf{volumes: 200, page: 150}, 300, 100, 2},
		{"a part of the cluster's", &shelf{volumes: 2000, page: 500}, 300, 200, 2},
		{"lists are refused", &shelf{volumes: 300, page: 300, err: forbidden}, 300, 0, 1},
		{"a continue token expires", &shelf{volumes: 400, page: 100, expires: true}, 300, 50, 2},
		{"a list fails", &shelf{volumes: 300, page: 300, err: errors.New("no")}, 300, 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := tc.shelf, newGather(resolve.KindVolume, tc.shelf.list)
				listed := s.readAll(t, g, tc.ask)
				synctest.Wait()
				time.Sleep(time.Minute) // the last get may run beside a list that has its object, too
				if listed < tc.listed || s.begun > tc.lists || len(s.gets) != tc.ask-listed {
					t.Errorf("%d from %d lists, %d gets; want at least %d from at most %d", listed, s.begun, len(s.gets), tc.listed, tc.lists)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				if len(g.waiting) > 0 || g.reading > 0 || g.listing || g.refused != (s.err == error(forbidden)) {
					t.Errorf("left: %d waiting, %d reading, listing %v, refused %v", len(g.waiting), g.reading, g.listing, g.refused)
				}
			})
		})
	}
}

// The provider stops a list that has almost none of the wanted objects. It never lists again for an identity that may
// not list.
func TestAListThatIsNotWorthItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{volumes: 10_000, page: 1000}
		g := newGather(resolve.KindVolume, s.list)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() { s.read(t, g, fmt.Sprint("v", i*50)) })
		}
		all.Wait()
		if slices.ContainsFunc(s.lists, func(from string) bool { return from != "" }) {
			t.Errorf("pages from %q, want the first of lists", s.lists)
		}
		g.refuse()
		before := len(s.lists)
		s.readAll(t, g, 300)
		if len(s.lists) > before {
			t.Errorf("listed again: %q", s.lists)
		}
	})
}

// A caller that asks during a list may know of a change that the list does not show.
func TestWhoAsksDuringAListIsNotAnsweredFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{volumes: 300, page: 300}
		g := newGather(resolve.KindVolume, s.list)
		late := make(chan string)
		go func() {
			time.Sleep(time.Second / 2)
			late <- s.read(t, g, "v299")
		}()
		go s.readAll(t, g, 200)
		if from := <-late; from == "list 1" {
			t.Error("answered from the list that was under way")
		}
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}

// A list does not wait for a caller that has given up, and sends it no answer.
func TestWhoGivesUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		g := newGather(resolve.KindVolume, s.list)
		for i := range gatherReads {
			go s.read(t, g, fmt.Sprint("v", i))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := g.read(ctx, source.Key{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // otherwise it would be asked for now
	})
}
