package harness

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// FUSE requests that an empty directory gets.
const (
	fuseForget    = 2
	fuseGetattr   = 3
	fuseSetattr   = 4
	fuseStatfs    = 17
	fuseInit      = 26
	fuseOpendir   = 27
	fuseReaddir   = 28
	fuseInterrupt = 36
)

// EmptyFUSE mounts a FUSE file system at path that is an empty directory. Its server lives until
// die is called or the test ends.
func EmptyFUSE(t *testing.T, path string) (die func()) {
	t.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,allow_other,fd=%d", server)
	if err := unix.Mount("empty", path, "fuse.empty", 0, data); err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		serveEmpty(server, pipe[0])
		unix.Close(server)
		unix.Close(pipe[0])
	}()
	die = sync.OnceFunc(func() {
		unix.Close(pipe[1])
		<-dead
	})
	t.Cleanup(die)
	return die
}

// serveEmpty answers the kernel until the other end of the pipe is closed, or
// the file system is unmounted.
func serveEmpty(server, pipe int) {
	request := make([]byte, 1<<17)
	for {
		fds := []unix.PollFd{{Fd: int32(server), Events: unix.POLLIN}, {Fd: int32(pipe), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		size, err := unix.Read(server, request)
		if err == unix.ENODEV {
			return
		}
		if err != nil || size < 40 { // EAGAIN, EINTR, and ENOENT of a request that was interrupted
			continue
		}
		if reply := answer(binary.NativeEndian.Uint32(request[4:])); reply != nil {
			binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
			copy(reply[8:16], request[8:16]) // the request's id
			unix.Write(server, reply)
		}
	}
}

// answer returns a reply: struct fuse_out_header and the operation's data; nil for no
// reply.
func answer(operation uint32) []byte {
	const header = 16
	at := binary.NativeEndian
	switch operation {
	case fuseForget, fuseInterrupt:
		return nil
	case fuseInit:
		reply := make([]byte, header+64)
		at.PutUint32(reply[header:], 7)
		at.PutUint32(reply[header+4:], 31)
		at.PutUint32(reply[header+20:], 1<<16) // max_write
		return reply
	case fuseGetattr, fuseSetattr:
		reply := make([]byte, header+16+88)
		attr := reply[header+16:]
		at.PutUint64(attr, 1) // ino
		at.PutUint32(attr[60:], unix.S_IFDIR|0o777)
		at.PutUint32(attr[64:], 2) // links
		at.PutUint32(attr[80:], 4096)
		return reply
	case fuseStatfs:
		reply := make([]byte, header+80)
		at.PutUint32(reply[header+40:], 4096)
		at.PutUint32(reply[header+44:], 255)
		return reply
	case fuseOpendir:
		return make([]byte, header+16)
	case fuseReaddir:
		return make([]byte, header)
	}
	reply := make([]byte, header)
	failed := -int32(unix.ENOSYS)
	at.PutUint32(reply[4:], uint32(failed))
	return reply
}
