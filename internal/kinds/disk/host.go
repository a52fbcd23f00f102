package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
)

// Host finds and changes the disks of a machine. It is safe for concurrent use.
type Host struct {
	// Sys and Dev are /sys and /dev.
	Sys, Dev string
	// Run runs a program, as (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
}

// NewHost returns the Host for this machine.
func NewHost(run func(ctx context.Context, c program.Command) error) Host {
	return Host{Sys: "/sys", Dev: "/dev", Run: run}
}

func (h Host) sys(elems ...string) string {
	return filepath.Join(append([]string{h.Sys}, elems...)...)
}

// read returns the trimmed content of a sysfs file.
func (h Host) read(elems ...string) (string, error) {
	b, err := os.ReadFile(h.sys(elems...))
	return strings.TrimSpace(string(b)), err
}

// Attribute returns a sysfs attribute, or "" if it cannot be read: its device may be
// disappearing, or an older kernel lacks it.
func (h Host) Attribute(elems ...string) string {
	text, err := h.read(elems...)
	if err != nil {
		return ""
	}
	return text
}

// writeAttribute writes value to a sysfs attribute, which must exist.
func (h Host) writeAttribute(value string, elems ...string) error {
	f, err := os.OpenFile(h.sys(elems...), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// ScanLUN makes a SCSI host scan for the logical unit lun at a channel and target of
// its address; lun "-" stands for all.
func (h Host) ScanLUN(host, channel, target, lun string) error {
	return h.writeAttribute(channel+" "+target+" "+lun, "class", "scsi_host", host, "scan")
}

// pollPause is the pause between two checks for a device whose driver is being bound;
// sysfs raises no event for that.
const pollPause = 50 * time.Millisecond

// poll calls f until it reports done, f fails, or ctx ends.
func poll(ctx context.Context, f func() (done bool, err error)) error {
	timer := time.NewTimer(pollPause)
	defer timer.Stop()
	for {
		if done, err := f(); done || err != nil {
			return err
		}
		timer.Reset(pollPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tool runs a program on a disk.
func (h Host) tool(ctx context.Context, d Disk, name, packages string, args ...string) error {
	return h.runOn(ctx, d, program.Command{Name: name, Args: args, Packages: packages})
}

// runOn runs c on a disk, on which one program at a time may work.
func (h Host) runOn(ctx context.Context, d Disk, c program.Command) error {
	c.Key = "disk " + d.WWID
	return h.Run(ctx, c)
}

// Exited reports whether err says that a program exited with one of the codes.
func Exited(err error, codes ...int) bool {
	e, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	return ok && slices.Contains(codes, e.ExitCode())
}
