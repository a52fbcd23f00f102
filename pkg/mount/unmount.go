package mount

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxLayers bounds how many mounts stacked at one path are removed in one call.
const maxLayers = 4096

// Unmount removes every mount stacked at target. That nothing is mounted there,
// or nothing exists, is no error. A symbolic link is not followed. Where a mount
// is in use the error is a [BusyError].
//
// The kernel may wait for the storage; when ctx ends first, Unmount returns and
// the call is left behind, one per target at most. The mount may then still go; until
// that call returns, Unmount of the target fails with [isolate.ErrHangs].
func (k *Kernel) Unmount(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, 0)
}

// Force is Unmount which first has all fail that waits for the storage
// (MNT_FORCE), where the file system can do that: NFS, CephFS, FUSE and their
// like. What was not written back is lost. What has files open is in the way
// as ever, and may have gone when it is called again.
func (k *Kernel) Force(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, unix.MNT_FORCE)
}

// Detach takes every mount stacked at target, with what is mounted below it, out
// of the directory tree at once; the kernel ends each when its last user is gone
// (MNT_DETACH). Until then its storage is in use, and no file of /proc shows it.
func (k *Kernel) Detach(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, unix.MNT_DETACH)
}

func (k *Kernel) unmountAll(ctx context.Context, target string, flags int) error {
	err := ctx.Err()
	if err != nil {
		err = context.Cause(ctx)
	} else if k.plain(target) {
		// The kernel takes a mount out of the tree before it waits for its storage:
		// until that unmount returns, the volume is in use although nothing shows.
		if flags == 0 {
			err = k.left(target)
		}
	} else {
		err = k.elsewhere(ctx, callUnmount, request{Path: target, Flags: flags}, func() error {
			return k.unmountLayers(target, flags)
		})
	}
	if errors.Is(err, unix.EBUSY) {
		err = k.explainBusy(ctx, target, err)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

func (k *Kernel) unmountLayers(target string, flags int) error {
	p, err := k.place(target)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	for range maxLayers {
		err := unix.Unmount(p.proc(), unix.UMOUNT_NOFOLLOW|flags)
		switch {
		case err == nil && k.has(MountRoot):
			// As a rule it was the only one. What is not to be told is for the next round.
			if st, err := k.identifyPlace(p); err == nil && !st.mountRoot || missing(err) {
				return nil
			}
		case err == nil || err == unix.EINTR:
		case missing(err):
			return nil
		case err == unix.EINVAL: // not a mount, or one that may not be removed
			info, lookErr := k.lookAt(p)
			if lookErr == nil && !info.Mounted {
				return nil
			}
			return errors.Join(os.NewSyscallError("umount2", err), lookErr)
		default:
			return os.NewSyscallError("umount2", err)
		}
	}
	return fmt.Errorf("more than %d mounts are stacked there", maxLayers)
}
