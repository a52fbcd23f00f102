package holders

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"
)

// errHung means that the kernel did not answer in time.
var errHung = errors.New("the kernel did not answer in time")

// bounded returns the result of do, which another goroutine calls. If that takes too long, bounded
// abandons it and fails, and so does every call with the same key until do has returned.
func bounded[T any](ctx context.Context, f *Finder, key string, do func() T) (result T, err error) {
	if f.isHung(key) {
		return result, errHung
	}
	results, ended := make(chan T, 1), make(chan struct{})
	go func() {
		r := do()
		f.mu.Lock()
		close(ended)
		delete(f.hung, key)
		f.mu.Unlock()
		results <- r
	}()
	patience := time.NewTimer(cmp.Or(f.Patience, mapsPatience))
	defer patience.Stop()
	select {
	case result = <-results:
		return result, nil
	case <-patience.C:
		err = errHung
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung == nil {
		f.hung = map[string]<-chan struct{}{}
	}
	select {
	case <-ended:
	default:
		f.hung[key] = ended
	}
	return result, err
}

func (f *Finder) isHung(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hung[key] != nil
}

// ends waits until nothing of the keys is still being read. It reports false if ctx ends before.
func (f *Finder) ends(ctx context.Context, keys ...string) bool {
	for _, key := range keys {
		f.mu.Lock()
		ended := f.hung[key]
		f.mu.Unlock()
		if ended == nil {
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// patiently is bounded for a search, which may wait for Query.Patience in addition.
func patiently[T any](ctx context.Context, s *search, key string, do func() T) (result T, err error) {
	result, err = bounded(ctx, s.f, key, do)
	if !errors.Is(err, errHung) || s.q.Patience == 0 {
		return result, err
	}
	longer, cancel := context.WithTimeout(ctx, s.q.Patience)
	defer cancel()
	if !s.f.ends(longer, key) {
		return result, err
	}
	return bounded(ctx, s.f, key, do)
}

// What is read of a process besides its memory.
const (
	ofDetached    = " detached"
	ofDirectories = " directories"
)

// again inspects the processes that could not be inspected, once what is still being read of them has been. On a busy
// machine that takes longer than [mapsPatience], though no storage is to blame: a compiler's memory was locked for as
// long beside two dozen others on two processors.
func (s *search) again(ctx context.Context) {
	late := s.found.Unread
	if s.q.Patience == 0 || len(late) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.q.Patience)
	defer cancel()
	s.found.Unread = nil
	isOf := func(pid int) func(Process) bool { return func(p Process) bool { return p.PID == pid } }
	for i, u := range late {
		if slices.ContainsFunc(late[:i], func(before Unread) bool { return before.PID == u.PID }) {
			continue
		}
		id := strconv.Itoa(u.PID)
		if slices.ContainsFunc(s.found.Processes, isOf(u.PID)) || !s.f.ends(ctx, id, id+ofDetached, id+ofDirectories) {
			s.found.Unread = append(s.found.Unread, u)
			continue
		}
		s.found.Named = slices.DeleteFunc(s.found.Named, isOf(u.PID))
		s.loose = slices.DeleteFunc(s.loose, func(c candidate) bool { return c.pid == u.PID })
		s.inspect(ctx, u.PID)
	}
}
