package doctor

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// file reads a file of the host.
func (e *examination) file(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join("/", e.Host, path))
}

func (e *examination) there(path string) bool {
	_, err := os.Stat(filepath.Join("/", e.Host, path))
	return err == nil
}

// kernel checks the system calls that mounts need, and the daemon's user.
func (e *examination) kernel() {
	release := "unknown"
	if b, err := e.file("proc/sys/kernel/osrelease"); err == nil {
		release = strings.TrimSpace(string(b))
	}
	if older(release) {
		e.warn("kernel.release", release,
			"csi-volmgr is made for Linux "+leastKernel+" and later: what an older one lacks is not known")
	} else {
		e.ok("kernel.release", release)
	}
	for _, f := range []struct {
		feature        mount.Feature
		since, without string
	}{
		{mount.OpenAt2, "5.6", "paths are opened element by element, as safely and more slowly"},
		{mount.FSContext, "5.2", "errors of mounts are a number only"},
		{mount.MountRoot, "5.8", "each look at a mount reads the whole mount table"},
		{mount.MountTree, "5.12", "a read-only bind mount is writable for a moment"},
		{
			mount.NoSwap, "6.4, outside of user namespaces",
			"secrets may be swapped to the disk: encrypt swap or have none",
		},
		{mount.MountID, "6.8", "a mount that was replaced by one of the same device is not noticed"},
	} {
		check := "kernel." + f.feature.String()
		advice := fmt.Sprintf("without it %s; Linux %s has it", f.without, f.since)
		if e.Features&f.feature != 0 {
			e.ok(check, "there")
		} else {
			e.warn(check, "missing", advice)
		}
	}
	if e.UID == 0 {
		e.ok("kernel.user", "root")
	} else {
		e.warn("kernel.user", "uid "+strconv.Itoa(e.UID),
			"the daemon needs root to mount, and without root this check does not see everything")
	}
	if b, err := e.file("proc/sys/kernel/random/boot_id"); err == nil {
		e.ok("kernel.boot-id", strings.TrimSpace(string(b)))
	} else {
		e.fail("kernel.boot-id", "cannot be read: "+err.Error(),
			"mount /proc: without it csi-volmgr cannot tell whether the node was rebooted")
	}
}

// leastKernel is the oldest Linux that the tests play (docs/adr/0034-the-least-kernel.md).
const leastKernel = "4.18"

// older reports whether a release of Linux, as "4.18.0-553.el8", is older than leastKernel.
func older(release string) bool {
	var major, minor, leastMajor, leastMinor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	_, _ = fmt.Sscanf(leastKernel, "%d.%d", &leastMajor, &leastMinor)
	return major < leastMajor || major == leastMajor && minor < leastMinor
}

// hasFileSystem reports whether the kernel has a file system or a module for it.
func (e *examination) hasFileSystem(name string) bool {
	b, err := e.file("proc/filesystems")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == name {
				return true
			}
		}
	}
	return e.hasModule(name)
}

// hasModule reports whether a module is loaded, built in, or installed.
func (e *examination) hasModule(name string) bool {
	if e.there("sys/module/" + name) {
		return true
	}
	release, err := e.file("proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		b, err := e.file(filepath.Join("lib/modules", strings.TrimSpace(string(release)), list))
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			module, _, _ := strings.Cut(s.Text(), ":")
			if base, _, _ := strings.Cut(filepath.Base(module), "."); base == name {
				return true
			}
		}
	}
	return false
}

// running reports whether a process with the name runs.
func (e *examination) running(name string) bool {
	comms, err := filepath.Glob(filepath.Join("/", e.Host, "proc/[0-9]*/comm"))
	return err == nil && slices.ContainsFunc(comms, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.TrimSpace(string(b)) == name
	})
}

// clock checks the clock, by which tokens expire and back-off is measured.
func (e *examination) clock() {
	var t unix.Timex
	status, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		e.warn("clock.synchronised", "not known: "+err.Error(),
			"see that something sets the clock (chrony, systemd-timesyncd)")
	case status == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		e.warn("clock.synchronised", "no",
			"run something that sets the clock (chrony, systemd-timesyncd): tokens expire by it, and logs are compared by it")
	default:
		e.ok("clock.synchronised", "yes")
	}
}
