package localdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// listener is a listening unix socket that can identify its own file.
type listener struct {
	*net.UnixListener
	path string
	file unixsocket.Identity
}

// listen makes a socket at path with mode 0600. It appears under its name when it is already
// listening, so that a node manager that watches the directory can dial at once. listen replaces a
// socket without a process; if a process listens there, it returns an error.
func listen(ctx context.Context, path string) (*listener, error) {
	if err := unixsocket.Free(ctx, path); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	// Bind through the directory's descriptor, so that the path may be longer than the 107 bytes of
	// sun_path.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var b [8]byte
	rand.Read(b[:])
	hidden := "." + hex.EncodeToString(b[:])
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// The socket file gets the mode of the unbound socket.
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	l, err := config.Listen(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), hidden))
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	if err := unix.Renameat(int(dir.Fd()), hidden, int(dir.Fd()), filepath.Base(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %s: %w", path, err), ul.Close(),
			unix.Unlinkat(int(dir.Fd()), hidden, 0))
	}
	return &listener{UnixListener: ul, path: path, file: unixsocket.Identify(path, unix.AT_SYMLINK_NOFOLLOW)}, nil
}

// remove removes the socket's file, unless another file has taken its name.
func (l *listener) remove() {
	if l.file.IsSocket() && unixsocket.Identify(l.path, unix.AT_SYMLINK_NOFOLLOW) == l.file {
		os.Remove(l.path)
	}
}
