package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
)

// probeTimeout bounds the check whether a process listens at an existing socket. A unix
// socket answers at once or not at all.
const probeTimeout = time.Second

// Listener listens on a unix socket and holds the lock file beside it: if two daemons
// start at once, one gets both and the other an error.
type Listener struct {
	*net.UnixListener
	lock *os.File
}

// passed listens on the socket at path that a service manager passed as f. It closes f.
func passed(f *os.File, path string) (*Listener, error) {
	defer f.Close() // the listener has its own
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", path, err)
	}
	l, err := net.FileListener(f)
	if err == nil {
		if u, ok := l.(*net.UnixListener); ok {
			return &Listener{UnixListener: u, lock: lock}, nil
		}
		err = errors.Join(fmt.Errorf("the service manager passed a %T, want a unix socket", l), l.Close())
	}
	return nil, errors.Join(fmt.Errorf("serve on %s: %w", path, err), unlock(lock))
}

// Listen creates the socket at path with mode 0600 and, if it is missing, its directory
// with mode 0700. It removes a socket that a dead daemon left. It fails if a process
// answers at the socket, or if something else than a socket is there.
//
// If a service manager already listens at path and passed its socket (systemd's socket
// activation), from is that socket: Listen listens on it and closes from. The socket
// itself stays when the daemon ends. In both cases the lock keeps a second daemon away.
func Listen(ctx context.Context, path string, from *os.File) (*Listener, error) {
	if from != nil {
		return passed(from, path)
	}
	if path == "" || len(path) > MaxPath {
		return nil, fmt.Errorf("socket path %q is %d bytes: 1 to %d are possible", path, len(path), MaxPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := bindSocket(ctx, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), unlock(lock))
	}
	return &Listener{UnixListener: l, lock: lock}, nil
}

func bindSocket(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := Free(ctx, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// A client that connects before this line still has to pass the credential check.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Free returns nil if a process may listen at path: nothing is there, or a socket on
// which no process listens any more.
func Free(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("there is a file that is not a socket (%s); remove it, or listen at another path",
			st.Mode().Type())
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := Dial(ctx, path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process answers there"), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("ask whether another process listens there: %w", err)
	}
}

// lockFile creates and locks the file at path; unlock removes it.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.Take(f); errors.Is(err, filelock.ErrHeld) {
			return nil, errors.New("another daemon holds " + path + filelock.Holder(path))
		} else if err != nil {
			return nil, err
		}
		held, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return f, nil
		}
		// The previous holder removed the file between our open and lock: our lock is
		// on a file that no later process will find.
		_ = f.Close()
	}
}

// unlock removes the lock file while it holds the lock, so that it never removes
// another daemon's.
func unlock(f *os.File) error {
	return errors.Join(os.Remove(f.Name()), f.Close())
}

// Close stops listening and removes the lock file and, unless it was passed, the
// socket. Further calls do nothing.
func (l *Listener) Close() error {
	if l.lock == nil {
		return nil
	}
	err := errors.Join(l.UnixListener.Close(), unlock(l.lock))
	l.lock = nil
	return err
}
