package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
)

// Device is a block device of this node that does not say which disk it is: a
// partition, a logical volume, a loop device.
type Device struct {
	// Path is its node's, without links in it.
	Path string
	// Run runs a program; (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
}

// host is the device as a disk, on which only programs are run.
func (d Device) host() (Host, Disk) {
	return Host{Dev: filepath.Dir(d.Path), Run: d.Run}, Disk{Name: filepath.Base(d.Path), WWID: d.Path}
}

func (d Device) open(flags int) (*os.File, error) {
	return os.OpenFile(d.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0)
}

// Prepare makes a file system on the device where reading proves that there is
// nothing, and checks what is there. A device that is in use is read and not
// changed: it has the file system that is wanted, or is refused. No beginning of a file system is
// remembered, since nothing would prove that it is on the same device: what an
// mkfs that was cut off left is data like any.
func (d Device) Prepare(ctx context.Context, w Want) error {
	if err := w.check(); err != nil {
		return err
	}
	pinned, err := d.open(0) // so that the name stays this device's
	if err != nil {
		return err
	}
	defer pinned.Close()
	alone, err := d.open(unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return asked(pinned, w.FSType)
	}
	if err != nil {
		return err
	}
	size, err := alone.Seek(0, io.SeekEnd)
	if err == nil {
		err = blank(ctx, alone, size)
	}
	if closeErr := alone.Close(); closeErr != nil { // mkfs and e2fsck want it for themselves
		return errors.Join(err, closeErr)
	}
	h, disk := d.host()
	switch {
	case errors.Is(err, ErrNotBlank):
		return h.check(ctx, disk, pinned, w, err)
	case err != nil:
		return err
	case w.ReadOnly:
		return poddir.Refused("Publish", fmt.Errorf("device %s is blank, and the volume is read-only", d.Path))
	}
	name, packages, args, err := mkfs(w.FSType, d.Path)
	if err != nil {
		return err
	}
	return h.tool(ctx, disk, name, packages, args...)
}

// Grow lets the file system at path, where it is mounted, take all of the
// device, and returns the device's size in bytes.
func (d Device) Grow(ctx context.Context, path, fsType string) (int64, error) {
	size, err := d.Size()
	if err != nil {
		return 0, err
	}
	h, disk := d.host()
	return size, h.growFS(ctx, disk, path, fsType)
}

// Size is the device's size in bytes.
func (d Device) Size() (int64, error) {
	f, err := d.open(0)
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return size, errors.Join(err, f.Close())
}
