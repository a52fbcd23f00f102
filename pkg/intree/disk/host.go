package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
)

// Host is where the disks are. It may be used by many goroutines.
type Host struct {
	// Sys and Dev are /sys and /dev.
	Sys, Dev string
	// Run runs a program; (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
}

// NewHost returns this machine.
func NewHost(run func(ctx context.Context, c program.Command) error) Host {
	return Host{Sys: "/sys", Dev: "/dev", Run: run}
}

func (h Host) sys(elems ...string) string {
	return filepath.Join(append([]string{h.Sys}, elems...)...)
}

// read returns what a file of sysfs says.
func (h Host) read(elems ...string) (string, error) {
	b, err := os.ReadFile(h.sys(elems...))
	return strings.TrimSpace(string(b)), err
}

// WriteAttribute writes to an attribute of sysfs, which must be there.
func (h Host) WriteAttribute(value string, elems ...string) error {
	f, err := os.OpenFile(h.sys(elems...), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// ScanLUN lets a SCSI host look for one device: at channel and target of its
// address, and lun.
func (h Host) ScanLUN(host, channel, target string, lun int32) error {
	return h.WriteAttribute(fmt.Sprintf("%s %s %d", channel, target, lun), "class", "scsi_host", host, "scan")
}

// look is the pause between two looks for a device whose driver is being bound,
// which sysfs has no event for.
const look = 50 * time.Millisecond

// Await calls f until it reports that it is done, or fails, or ctx ends.
func Await(ctx context.Context, f func() (done bool, err error)) error {
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		if done, err := f(); done || err != nil {
			return err
		}
		timer.Reset(look)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tool runs a program on a disk.
func (h Host) tool(ctx context.Context, d Disk, name, packages string, args ...string) error {
	return h.Run(ctx, program.Command{Name: name, Args: args, Packages: packages, Key: "disk " + d.WWID})
}

// Exited reports whether err is that a program ended with one of the codes.
func Exited(err error, codes ...int) bool {
	e, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if e.ExitCode() == code {
			return true
		}
	}
	return false
}
