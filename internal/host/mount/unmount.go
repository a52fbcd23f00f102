package mount

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxLayers limits how many mounts stacked at one path are removed in one call.
const maxLayers = 4096

// Unmount removes every mount stacked at target. It succeeds if nothing is mounted there
// or target does not exist. It does not follow a symbolic link. If a mount is in use, the
// error is a [BusyError].
//
// The kernel may wait for the storage. If ctx ends first, Unmount returns and abandons
// the call, at most one per target. The call may still unmount later; until it returns,
// Unmount of the target fails with [isolate.ErrHangs].
func (k *Kernel) Unmount(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, 0)
}

// Force is Unmount, but first makes requests that wait for the storage fail (MNT_FORCE),
// if the file system can do that: NFS, CephFS, FUSE and the like. Data that was not
// written back is lost. Open files still block it; their processes may have ended when it
// is called again.
func (k *Kernel) Force(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, unix.MNT_FORCE)
}

// Detach takes every mount stacked at target, with the mounts below it, out of the
// directory tree at once; the kernel ends each when its last user is gone (MNT_DETACH).
// Until then its storage is in use, and no file in /proc shows it.
func (k *Kernel) Detach(ctx context.Context, target string) error {
	return k.unmountAll(ctx, target, unix.MNT_DETACH)
}

func (k *Kernel) unmountAll(ctx context.Context, target string, flags int) error {
	err := ctx.Err()
	if err != nil {
		err = context.Cause(ctx)
	} else if k.surelyNotMounted(target) {
		// The kernel takes a mount out of the tree before it waits for the storage: until
		// that unmount returns, the volume is in use although no mount is visible.
		if flags == 0 {
			err = k.pendingUnmount(target)
		}
	} else {
		err = k.callAway(ctx, callUnmount, request{Path: target, Flags: flags}, func() error {
			return k.unmountLayers(target, flags)
		})
	}
	if errors.Is(err, unix.EBUSY) {
		err = k.explainBusy(ctx, target, err)
	}
	return wrap(err, "unmount %s", target)
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
			// Usually it was the only one. If that is unknown, the next round finds out.
			if st, err := k.identifyPlace(p); err == nil && !st.mountRoot || missing(err) {
				return nil
			}
		case err == nil || err == unix.EINTR:
		case missing(err):
			return nil
		case err == unix.EINVAL: // not a mount, or one that must not be removed
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
