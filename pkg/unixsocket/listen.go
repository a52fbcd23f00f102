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

	"github.com/csi-volmgr/csi-volmgr/pkg/filelock"
)

// probeTimeout bounds the question whether a process answers at a socket that is
// already there. A unix socket answers at once or not at all.
const probeTimeout = time.Second

// Listener listens on a unix socket and holds the lock beside it, so that of two
// daemons started at once one gets both and the other an error.
type Listener struct {
	*net.UnixListener
	lock *os.File
}

// passed serves on the socket at path that a service manager listens on. It closes f.
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
		err = errors.Join(fmt.Errorf("what was passed is %T", l), l.Close())
	}
	return nil, errors.Join(fmt.Errorf("serve on %s: %w", path, err), unlock(lock))
}

// Listen makes the socket at path, 0600, and its directory, 0700, where that is
// missing. A socket left by a dead daemon is removed; one at which a process
// answers, or anything that is no socket, is an error.
//
// A service manager (systemd's socket activation) may listen at path already and have
// passed its socket, which stays when the daemon goes: Listen then serves on from,
// and closes it. In both cases the lock keeps a second daemon away.
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
	// A client that connects before this line still has to pass the check of its credentials.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Free returns nil if a process may listen at path: nothing is there, or a socket at
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
		return fmt.Errorf("there is something that is no socket (%s); remove it, or listen at another path",
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

// lockFile opens and locks the file at path, which unlock removes again.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.Take(f); errors.Is(err, filelock.ErrHeld) {
			return nil, errors.New("another daemon is there (it holds " + path + ")")
		} else if err != nil {
			return nil, err
		}
		held, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return f, nil
		}
		// Its holder removed it between open and lock: the lock is on a file that
		// no later start will find.
		_ = f.Close()
	}
}

// unlock removes the lock file while it is held, so that no other daemon's is removed.
func unlock(f *os.File) error {
	return errors.Join(os.Remove(f.Name()), f.Close())
}

// Close stops listening and removes socket (but one that was passed) and lock. Further calls do nothing.
func (l *Listener) Close() error {
	if l.lock == nil {
		return nil
	}
	err := errors.Join(l.UnixListener.Close(), unlock(l.lock))
	l.lock = nil
	return err
}
