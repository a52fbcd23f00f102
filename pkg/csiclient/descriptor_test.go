package csiclient

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The number of a descriptor in use is no other's, and its last user closes it.
func TestADescriptorIsClosedByItsLastUser(t *testing.T) {
	fd, err := unix.Open(t.TempDir(), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	s := newDescriptor(fd)
	if !s.take() {
		t.Fatal("it cannot be used")
	}
	s.leave() // the owner
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || !s.take() {
		t.Errorf("closed while it is used: %v", err)
	}
	s.leave()
	s.leave()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF || s.take() {
		t.Errorf("not closed by its last user: %v", err)
	}
}
