package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fuseServers knows who serves FUSE file systems: a process that has /dev/fuse
// open for their connection. It looks through all processes only where who
// served one when it was asked before does so no more.
type fuseServers struct {
	mu      sync.Mutex
	at      map[uint32]string // connection -> the file of /proc that shows it
	unsaid  bool              // a process has /dev/fuse open, and the kernel does not say for what
	scanned time.Time
}

// scanPause is the least time between two looks through all processes.
const scanPause = 5 * time.Second

// FUSEServed reports whether a process serves the FUSE file system that is mounted
// at path. /proc alone is asked: where none does, the file system is dead,
// and to ask it costs nothing; one that is served may not answer, and whoever
// asks it then holds the mount, which so cannot be unmounted. The error is
// [errors.ErrUnsupported] where that cannot be told: before Linux 6.14.
func (k *Kernel) FUSEServed(ctx context.Context, path string) (bool, error) {
	info, err := k.Look(ctx, path)
	if err != nil {
		return false, err
	}
	if !info.Mounted || info.Dev>>32 != 0 {
		return false, fmt.Errorf("%s: no FUSE file system without a device: %w", path, errors.ErrUnsupported)
	}
	k.fuse.mu.Lock()
	defer k.fuse.mu.Unlock()
	return k.fuse.served(uint32(info.Dev))
}

func (s *fuseServers) served(connection uint32) (bool, error) {
	if file, known := s.at[connection]; known && connectionIn(file) == fmt.Sprint(connection) {
		return true, nil
	}
	delete(s.at, connection)
	if time.Since(s.scanned) >= scanPause {
		if err := s.scan(); err != nil {
			return false, err
		}
	}
	_, served := s.at[connection]
	if !served && s.unsaid {
		return false, fmt.Errorf("the kernel does not say of every open /dev/fuse what it is for: %w", errors.ErrUnsupported)
	}
	return served, nil
}

// scan looks through what all processes have open. That a process ends meanwhile
// is no error.
func (s *fuseServers) scan() error {
	s.at, s.unsaid, s.scanned = map[uint32]string{}, false, time.Now()
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if strings.Trim(p.Name(), "0123456789") != "" {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		fds, _ := os.ReadDir(dir + "/fd") // none of one that has ended
		for _, fd := range fds {
			// In a container's own /dev the file has another directory.
			if file, err := os.Readlink(dir + "/fd/" + fd.Name()); err != nil || filepath.Base(file) != "fuse" {
				continue
			}
			s.note(dir + "/fdinfo/" + fd.Name())
		}
	}
	return nil
}

func (s *fuseServers) note(file string) {
	text := connectionIn(file)
	connection, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err == nil:
		s.at[uint32(connection)] = file
	case text == "": // an older kernel, or nothing is mounted by it yet
		s.unsaid = true
	}
}

// connectionIn is what a file of /proc/PID/fdinfo says of a FUSE connection: its
// number; "-" for none; "" where the kernel does not say.
func connectionIn(file string) string {
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
