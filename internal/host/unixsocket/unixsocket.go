// Package unixsocket connects to unix sockets whose paths are longer than a socket
// address, as those of drivers below a deep root directory are; finds out who listens
// at a socket; and listens where only one daemon may. It knows no protocol, except
// CSI's form of endpoints. Its functions are safe for concurrent use.
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

// MaxPath is the maximum length of a path in a unix socket address (unix(7), without
// the terminating NUL).
const MaxPath = 107

// Dial connects to the socket at path. If path is too long for an address, it goes
// through a descriptor of the directory, so that only the last element has to fit.
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

// Peer returns the kernel's credentials of the other end of a unix connection (unix(7),
// SO_PEERCRED); for a dialled connection, those of the process that called listen.
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

// PeerError means that a process of an untrusted user listens on a socket.
type PeerError struct{ UID uint32 }

func (e *PeerError) Error() string {
	return fmt.Sprintf("a process of user id %d listens on it", e.UID)
}

// DialTrusted connects to a socket on which root, the user of this process or one of
// others listens; for any other listener it returns a [PeerError]. The owner and mode
// of the socket's file would prove less: any writer of the directory can put a
// socket there, and the owner of a file can let others connect.
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
