package registration

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

const (
	// dirMode is the mode of a registration directory that csi-volmgr creates.
	dirMode = 0o750
	// maxSockets and maxDirs limit a scan. A node has tens of drivers.
	maxSockets = 1024
	maxDirs    = 256
	// scanTries limits how often a scan restarts because the directory vanished.
	scanTries = 8
)

// errTooMany means that the directory has more sockets or subdirectories than any node needs.
var errTooMany = errors.New("too many sockets or subdirectories")

// scanDir returns the sockets in dir and its subdirectories by path. It calls
// watch for each directory before it reads it, so that no change is missed
// between the two. It skips names that begin with a dot, and symbolic links.
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
