package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
)

// Device is a block device of this node that does not report a disk identity: a
// partition, a logical volume or a loop device.
type Device struct {
	// Path is the path of the device node, without symbolic links.
	Path string
	// Run runs a program, as (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
}

// host returns the device as a Host and a Disk, which suffice to run programs on it.
func (d Device) host() (Host, Disk) {
	return Host{Dev: filepath.Dir(d.Path), Run: d.Run}, Disk{Name: filepath.Base(d.Path), WWID: d.Path}
}

func (d Device) open(flags int) (*os.File, error) {
	return os.OpenFile(d.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0)
}

// Prepare makes a file system if reading proves that the device is blank; otherwise it
// checks the one that is there. A device in use is only read: it must already have the
// wanted file system. Prepare does not remember that it began to make a file system,
// since it could not prove later that the device is the same one. A kill of the daemon
// does not interrupt mkfs; what one wrote that a power cut interrupted counts as data.
func (d Device) Prepare(ctx context.Context, w Want) error {
	if err := w.check(); err != nil {
		return err
	}
	pinned, err := d.open(0) // keeps the name bound to this device
	if err != nil {
		return err
	}
	defer pinned.Close()
	if err := dropCache(pinned); err != nil {
		return err
	}
	exclusive, err := d.open(unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return requireFS(pinned, w.FSType)
	}
	if err != nil {
		return err
	}
	size, err := exclusive.Seek(0, io.SeekEnd)
	if err == nil {
		err = blank(ctx, exclusive, size)
	}
	if closeErr := exclusive.Close(); closeErr != nil { // mkfs and e2fsck open it exclusively
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
	format, err := mkfs(w.FSType, d.Path)
	if err != nil {
		return err
	}
	return h.runOn(ctx, disk, format)
}

// Grow grows the file system mounted at path to the size of the device, and returns
// that size in bytes.
func (d Device) Grow(ctx context.Context, path, fsType string) (int64, error) {
	size, err := d.Size()
	if err != nil {
		return 0, err
	}
	h, disk := d.host()
	return size, h.growFS(ctx, disk, path, fsType)
}

// Size returns the device's size in bytes.
func (d Device) Size() (int64, error) {
	f, err := d.open(0)
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return size, errors.Join(err, f.Close())
}
