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

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

// listener is a listening unix socket that knows which file is its own.
type listener struct {
	*net.UnixListener
	path string
	file unixsocket.Identity
}

// listen makes a socket at path, mode 0600. It appears in one step, already
// listening, under its name: a node manager that watches the directory can dial at once. A
// socket without a process is replaced; one that is alive is an error.
func listen(ctx context.Context, path string) (*listener, error) {
	if err := unixsocket.Free(ctx, path); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	// Bound by the directory's descriptor, the path may be as long as it likes;
	// sun_path holds no more than 107 bytes.
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
		// The mode of an unbound socket is the one its file will have.
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

// remove takes the socket's file away, unless another has taken its name.
func (l *listener) remove() {
	if l.file.IsSocket() && unixsocket.Identify(l.path, unix.AT_SYMLINK_NOFOLLOW) == l.file {
		os.Remove(l.path)
	}
}
