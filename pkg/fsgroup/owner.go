package fsgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Giver gives the directory of a named volume to the user that its options name. What is in it
// stays as it is.
type Giver struct {
	// Root is the node's root directory, which no path leaves.
	Root *os.File
	// Helpers make the calls, which may hang; nil means in this process.
	Helpers *isolate.Pool
}

// callOwner is the name of the helper's call.
const callOwner = "owner"

type ownerRequest struct {
	Root  string      `json:"root"`
	Path  string      `json:"path"`
	Owner state.Owner `json:"owner"`
}

// Give gives the directory at path, below Root, its owner and mode.
func (g Giver) Give(ctx context.Context, path string, o state.Owner) error {
	if g.Helpers == nil {
		return give(g.Root, path, o)
	}
	_, err := isolate.Ask[any](ctx, g.Helpers, path, callOwner, ownerRequest{g.Root.Name(), path, o})
	return err
}

// doOwner gives a directory to its owner, in the helper.
func doOwner(_ context.Context, r ownerRequest) (any, error) {
	return nil, inRoot(r.Root, func(root *os.File) error { return give(root, r.Path, r.Owner) })
}

// give changes only what is not as asked: a read-only file system, or a server that lets root
// change nothing, is no failure where the directory is as it is to be.
func give(root *os.File, path string, o state.Owner) error {
	dir, err := openBelow(root, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
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
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil { // a change of the owner takes the setgid bit away
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&0o7777 != mode {
		if err := unix.Fchmod(int(dir.Fd()), mode); err != nil {
			return fmt.Errorf("give %s mode %04o: %w", path, mode, err)
		}
	}
	return nil
}

// openBelow opens a directory beneath root and through no link: whatever a driver has made of
// the path, no other directory is given away.
func openBelow(root *os.File, path string) (*os.File, error) {
	rel, err := filepath.Rel(root.Name(), path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat2(int(root.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
