package fsgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Giver changes the owner and mode of a named volume's directory to those of its
// options. It does not change the directory's content.
type Giver struct {
	// Root is the node's root directory; no path leads out of it.
	Root *os.File
	// Helpers make the system calls, which may hang. If nil, this process makes them.
	Helpers *isolate.Pool
}

// callOwner is the name of the helper's call that sets an owner.
const callOwner = "owner"

type ownerRequest struct {
	Root  string      `json:"root"`
	Path  string      `json:"path"`
	Owner state.Owner `json:"owner"`
}

// Give sets the owner and mode of the directory at path, which is below Root.
func (g Giver) Give(ctx context.Context, path string, o state.Owner) error {
	if g.Helpers == nil {
		return give(g.Root, path, o)
	}
	_, err := isolate.Ask[any](ctx, g.Helpers, path, callOwner, ownerRequest{g.Root.Name(), path, o})
	return err
}

// doOwner sets a directory's owner and mode; it runs in the helper.
func doOwner(_ context.Context, r ownerRequest) (any, error) {
	return nil, withRoot(r.Root, func(root *os.File) error { return give(root, r.Path, r.Owner) })
}

// give changes only what differs. So it succeeds on a read-only file system, or on a
// server that lets root change nothing, if the directory already is as wanted.
func give(root *os.File, path string, o state.Owner) error {
	dir, err := openBelow(root, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	uid, gid, mode := int(st.Uid), int(st.Gid), st.Mode&0o7777
	if o.UID != nil {
		uid = *o.UID
	}
	if o.GID != nil {
		gid = *o.GID
	}
	if o.Mode != nil {
		mode = uint32(*o.Mode)
	}
	if uid != int(st.Uid) || gid != int(st.Gid) {
		if err := unix.Fchown(int(dir.Fd()), uid, gid); err != nil {
			return fmt.Errorf("give %s to user %d and group %d: %w", path, uid, gid, err)
		}
	}
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil { // a change of owner clears the setgid bit
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	if st.Mode&0o7777 != mode {
		if err := unix.Fchmod(int(dir.Fd()), mode); err != nil {
			return fmt.Errorf("give %s mode %04o: %w", path, mode, err)
		}
	}
	return nil
}

// openBelow opens a directory below root without following links, so that no other
// directory changes its owner, whatever a driver put at the path.
func openBelow(root *os.File, path string) (*os.File, error) {
	rel, err := filepath.Rel(root.Name(), path)
	if err != nil {
		return nil, err
	}
	fd, err := beneath.Open(int(root.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
