package csiclient

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// descriptor stays open while anybody uses it: a call that outlasts its driver
// must not find another file under that number. An [os.File] does that too, at
// five allocations a use.
type descriptor struct {
	fd    int
	users atomic.Int64 // with the owner as one; none: closed
}

func newDescriptor(fd int) *descriptor {
	s := &descriptor{fd: fd}
	s.users.Store(1)
	return s
}

// take reports whether the descriptor may be used, until [descriptor.leave].
func (s *descriptor) take() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends a use, or what newDescriptor began: the last closes the descriptor.
func (s *descriptor) leave() {
	if s.users.Add(-1) == 0 {
		unix.Close(s.fd)
	}
}
