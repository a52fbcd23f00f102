// Package unixsocket connects to unix sockets whose paths may be longer than an
// address holds, as those of drivers are below a deep root directory, says who
// listens there, and listens where one daemon may. It knows no protocol but what CSI
// says of endpoints. Its functions may be called by any goroutine.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxPath is the longest path that a unix socket's address holds (unix(7), less
// the terminating NUL).
const MaxPath = 107

// Dial connects to the socket at path, also where path is too long for an
// address: then by way of a descriptor of its directory, so that its last element
// alone has to fit.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= MaxPath {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	return d.DialContext(ctx, "unix", short)
}

// Peer says who is at the other end of a unix connection, as the kernel vouches
// for it (unix(7), SO_PEERCRED): of one that was dialled, who began to listen there.
func Peer(c net.Conn) (*unix.Ucred, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("connection of type %T has no credentials", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}

// PeerError is the error of a connection to a process of a user who may not have it.
type PeerError struct{ UID uint32 }

func (e *PeerError) Error() string {
	return fmt.Sprintf("a process of user id %d listens on it", e.UID)
}

// DialTrusted connects to a socket on which root, the user of this process, or one of
// the others listens; else the error is a [PeerError]. The owner and mode of the socket's
// file say less: who may write the directory may put a socket there, and who owns a
// file may let others connect.
func DialTrusted(ctx context.Context, path string, others ...uint32) (net.Conn, error) {
	conn, err := Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	peer, err := Peer(conn)
	switch {
	case err != nil:
		err = fmt.Errorf("tell who listens on it: %w", err)
	case peer.Uid != 0 && int(peer.Uid) != os.Geteuid() && !slices.Contains(others, peer.Uid):
		err = &PeerError{peer.Uid}
	default:
		return conn, nil
	}
	return nil, errors.Join(err, conn.Close())
}
