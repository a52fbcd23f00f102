package localdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

// listener is a listening unix socket that knows which file is its own.
type listener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// socketPath is the path in a CSI endpoint.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if path == endpoint {
		path = strings.TrimPrefix(endpoint, "unix:")
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: want unix:///absolute/path.sock", endpoint)
	}
	return filepath.Clean(path), nil
}

// listen makes a socket at path, mode 0600. It appears in one step, already
// listening, under its name: a node manager that watches the directory can dial at once. A
// socket without a process is replaced; one that is alive is an error.
func listen(ctx context.Context, path string) (*listener, error) {
	if err := mustBeDead(ctx, path); err != nil {
		return nil, err
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
	file, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ul.Close())
	}
	return &listener{UnixListener: ul, path: path, file: file}, nil
}

// mustBeDead fails if something at path is in the way: a live socket, or no socket.
func mustBeDead(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen at %s: there is something that is no socket", path)
	}
	conn, err := unixsocket.Dial(ctx, path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("listen at %s: another process answers there", path)
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("listen at %s: %w", path, err)
}

// remove takes the socket's file away, unless another has taken its name.
func (l *listener) remove() {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		os.Remove(l.path)
	}
}
