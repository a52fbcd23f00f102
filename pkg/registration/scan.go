package registration

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

const (
	// dirMode is that of the registration directory where it is made.
	dirMode = 0o750
	// maxSockets and maxDirs bound what is looked at. A node has tens of drivers.
	maxSockets = 1024
	maxDirs    = 256
	// scanTries bounds how often a scan begins anew because the directory vanished.
	scanTries = 8
)

// errTooMany is a directory with more in it than any node has drivers.
var errTooMany = errors.New("too many sockets or subdirectories")

// scanDir returns the sockets in dir and its subdirectories by path. It calls
// watch for each directory before it reads it, so that nothing is missed
// between the two. Names that begin with a dot are passed over, and so are
// links: only what is really there counts.
func scanDir(dir string, watch func(string) error) (map[string]unixsocket.Identity, error) {
	found := map[string]unixsocket.Identity{}
	dirs := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path != dir && (errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(filepath.Base(path), ".")):
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil:
			return err
		case e.IsDir():
			if dirs++; dirs > maxDirs {
				return errTooMany
			}
			if err := watch(path); err != nil && (path == dir || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		case e.Type() == fs.ModeSocket:
			if len(found) == maxSockets {
				return errTooMany
			}
			if id := unixsocket.Identify(path, unix.AT_SYMLINK_NOFOLLOW); id.IsSocket() {
				found[path] = id
			}
		}
		return nil
	})
	return found, err
}
