package server

import (
	"fmt"
	"sync"
)

// maxStreams bounds the open waits and watches. Peers that may only read share
// maxReaders of them, and each of their users gets maxOfReader, so that they cannot
// lock out root.
const (
	maxStreams  = 128
	maxReaders  = 96
	maxOfReader = 32
)

// streams counts the open waits and watches.
type streams struct {
	mu   sync.Mutex // guards the fields below
	all  int
	read int            // by peers that may only read
	of   map[uint32]int // read, by user id
}

// take counts one more stream of p until free is called. The error wraps ErrBusy.
func (s *streams) take(p peer) (free func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := !p.owner()
	switch {
	case s.all >= maxStreams || reads && s.read >= maxReaders:
		return nil, fmt.Errorf("%w: %d waits and watches are open, which is the maximum", ErrBusy, s.all)
	case reads && s.of[p.uid] >= maxOfReader:
		return nil, fmt.Errorf("%w: user %d has %d waits and watches open, the maximum for a user who may only read",
			ErrBusy, p.uid, s.of[p.uid])
	}
	s.count(p, reads, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count(p, reads, -1)
	}, nil
}

// count adds n to the counts of p; s.mu is held.
func (s *streams) count(p peer, reads bool, n int) {
	s.all += n
	if !reads {
		return
	}
	if s.of == nil {
		s.of = map[uint32]int{}
	}
	s.read += n
	if s.of[p.uid] += n; s.of[p.uid] == 0 {
		delete(s.of, p.uid)
	}
}
