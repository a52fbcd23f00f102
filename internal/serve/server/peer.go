package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
)

// maxPeerGroups bounds how many groups of a client the kernel is asked for. NGROUPS_MAX
// is 65,536, but no account is in that many.
const maxPeerGroups = 1024

// peer is the process at the other end of a connection.
type peer struct {
	uid    uint32
	pid    int32
	groups []uint32 // the first is the primary one
	err    error
	// named returns the peer for the audit log. It reads /proc once, when the
	// connection's first act is noted: a client that applies 1,000 pods stays one
	// process.
	named func() audit.By
}

type peerKey struct{}

// withPeer adds the kernel's credentials of the connection's other end (SO_PEERCRED) to
// the context of its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, credentials(c))
}

// peerOf returns the peer that sent r.
func peerOf(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

func credentials(c net.Conn) peer {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return peer{err: fmt.Errorf("connection of type %T has no credentials", c)}
	}
	cred, err := unixsocket.Peer(uc)
	if err != nil {
		return peer{err: err}
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return peer{err: err}
	}
	p := peer{uid: cred.Uid, pid: cred.Pid, groups: []uint32{cred.Gid}}
	p.named = sync.OnceValue(func() audit.By { return audit.Peer(cred.Uid, cred.Pid) })
	p.err = raw.Control(func(fd uintptr) { p.groups = append(p.groups, peerGroups(fd)...) })
	return p
}

// peerGroups returns the supplementary groups of the other end (SO_PEERGROUPS, Linux
// 4.13); none if the kernel does not report them.
func peerGroups(fd uintptr) []uint32 {
	buf := make([]byte, 4*maxPeerGroups)
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	var groups []uint32
	for b := buf[:size]; len(b) >= 4; b = b[4:] {
		groups = append(groups, binary.NativeEndian.Uint32(b))
	}
	return groups
}

// owner reports whether p may do everything, as root and the daemon's own user may.
func (p peer) owner() bool { return p.err == nil && (p.uid == 0 || int(p.uid) == os.Geteuid()) }

// allowed returns nil if p may make a request of this method. Members of the group
// readers may read; 0 means that there is no such group.
func (p peer) allowed(method string, readers uint32) error {
	reads := method == http.MethodGet || method == http.MethodHead
	member := readers != 0 && slices.Contains(p.groups, readers)
	switch {
	case p.err != nil:
		return fmt.Errorf("%w: cannot tell who is calling: %w", ErrForbidden, p.err)
	case p.owner() || reads && member:
		return nil
	case member:
		return fmt.Errorf("%w: user %d may only read on this socket; root may also change something", ErrForbidden, p.uid)
	default:
		return fmt.Errorf("%w: user %d may not use this socket, only root and user %d may", ErrForbidden, p.uid, os.Geteuid())
	}
}

// openTo lets the group connect to the socket at path. If the socket's directory is the
// daemon's alone (mode 0700), or was opened for another group by an earlier run (0710), it
// also lets the group pass the directory.
func openTo(path string, group uint32) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := st.Mode().Perm(); mode == 0o700 || mode == 0o710 {
		if err := errors.Join(os.Chown(dir, -1, int(group)), os.Chmod(dir, 0o710)); err != nil {
			return err
		}
	}
	return errors.Join(os.Chown(path, -1, int(group)), os.Chmod(path, 0o660))
}
