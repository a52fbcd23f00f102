package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fuseServers remembers which process serves each FUSE file system: one that has
// /dev/fuse open for its connection. It scans all processes only if the remembered
// process no longer serves the connection.
type fuseServers struct {
	mu         sync.Mutex
	at         map[uint32]devFUSE // by connection
	incomplete bool               // the kernel does not show the connection of some open /dev/fuse
	scanned    time.Time
}

// devFUSE is an open /dev/fuse: a process and its file descriptor.
type devFUSE struct{ pid, fd int }

// scanPause is the minimum time between two scans of all processes.
const scanPause = 5 * time.Second

// FUSEServed reports whether a process serves the FUSE file system mounted at path. It
// asks /proc, and the kernel about open /dev/fuse files, but no server. If no process serves
// the file system, it is dead and can be asked without risk; a served one may not answer, and
// the process that asks it then holds the mount, which therefore cannot be unmounted. The
// error is [errors.ErrUnsupported] if the kernel cannot tell: before Linux 6.14.
func (k *Kernel) FUSEServed(ctx context.Context, path string) (bool, error) {
	info, err := k.Look(ctx, path)
	if err != nil {
		return false, err
	}
	if !info.Mounted || info.Dev>>32 != 0 {
		return false, fmt.Errorf("%s: not a FUSE file system without a device: %w", path, errors.ErrUnsupported)
	}
	k.fuse.mu.Lock()
	defer k.fuse.mu.Unlock()
	return k.fuse.served(uint32(info.Dev))
}

func (s *fuseServers) served(connection uint32) (bool, error) {
	if f, known := s.at[connection]; known && f.connection() == fmt.Sprint(connection) {
		return true, nil
	}
	delete(s.at, connection)
	if time.Since(s.scanned) >= scanPause {
		if err := s.scan(); err != nil {
			return false, err
		}
	}
	_, served := s.at[connection]
	if !served && s.incomplete {
		return false, fmt.Errorf("the kernel does not show the connection of every open /dev/fuse: %w", errors.ErrUnsupported)
	}
	return served, nil
}

// scan reads the open files of all processes. It ignores processes that end meanwhile.
func (s *fuseServers) scan() error {
	s.at, s.incomplete, s.scanned = map[uint32]devFUSE{}, false, time.Now()
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue // no process
		}
		dir := filepath.Join("/proc", p.Name())
		fds, _ := os.ReadDir(dir + "/fd") // none if it has ended
		for _, fd := range fds {
			// In a container's own /dev the path may have another directory.
			if file, err := os.Readlink(dir + "/fd/" + fd.Name()); err != nil || filepath.Base(file) != "fuse" {
				continue
			}
			if number, err := strconv.Atoi(fd.Name()); err == nil {
				s.note(devFUSE{pid, number})
			}
		}
	}
	return nil
}

func (s *fuseServers) note(f devFUSE) {
	text := f.connection()
	connection, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err == nil:
		s.at[uint32(connection)] = f
	case text == "": // an older kernel, or not mounted yet
		s.incomplete = true
	}
}

// connection returns the FUSE connection that f serves: "-" if it serves none, "" if the kernel does not show it.
func (f devFUSE) connection() string {
	number := connectionOf(fmt.Sprintf("/proc/%d/fdinfo/%d", f.pid, f.fd))
	if number != "-" && number != "" && f.aborted() {
		return "-" // the kernel may have given the number to another file system since
	}
	return number
}

// aborted reports whether the kernel has ended the connection of f: its file system is unmounted, and the process
// still has the file open. A kernel or a process that does not let the file be asked (before Linux 5.6, or without
// CAP_SYS_PTRACE) leaves that unknown: false.
func (f devFUSE) aborted() bool {
	process, err := unix.PidfdOpen(f.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(process)
	device, err := unix.PidfdGetfd(process, f.fd, 0)
	if err != nil {
		return false
	}
	defer unix.Close(device)
	events := []unix.PollFd{{Fd: int32(device)}}
	_, err = unix.Poll(events, 0)
	return err == nil && events[0].Revents&unix.POLLERR != 0 // fuse_dev_poll: not connected
}

// connectionOf returns the FUSE connection number in a /proc/PID/fdinfo file: "-" if the
// file cannot be read, "" if the kernel does not show it.
func connectionOf(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "-"
	}
	for line := range bytes.Lines(data) {
		if number, ok := bytes.CutPrefix(line, []byte("fuse_connection:")); ok {
			return string(bytes.TrimSpace(number))
		}
	}
	return ""
}
