package quota

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNone means that a file system enforces no project quotas.
var ErrNone = errors.New("the file system enforces no project quotas")

const (
	// firstID and ids are the range of project IDs given to directories. IDs that
	// people choose, and those of the kubelet (from 1048577), are usually smaller.
	firstID = 1 << 24
	ids     = 1 << 16
	// record is the file that holds a directory's project ID.
	record     = "project"
	recordMode = 0o600
	maxRecord  = 16
)

// kernel is the kernel's interface to project quotas.
type kernel interface {
	enforced(dir *os.File) (bool, error)
	project(dir *os.File) (uint32, error)
	setProject(dir *os.File, id uint32) error
	quota(dir *os.File, id uint32) (account, error)
	setLimit(dir *os.File, id uint32, bytes int64) error
}

// account is the state of a project on a file system.
type account struct{ used, limited bool }

// Projects assigns projects to directories. Use [New] to make one.
type Projects struct {
	kernel kernel
	// taken are files that list used IDs: "id:path" or "name:id" (projects(5),
	// projid(5)).
	taken []string

	mu   sync.Mutex // held while looking for a free ID
	next uint32     // offset from firstID at which the next search starts
}

// New returns the Projects of this node.
func New() *Projects {
	return &Projects{kernel: system{}, taken: []string{"/etc/projects", "/etc/projid"}}
}

// Limit sets how many bytes the tree dir may hold, and records the project in the
// directory scratch. It does nothing to a directory that already has content but no
// recorded project, since that content would not count. It fails with [ErrNone] if the
// file system enforces no project quotas.
func (p *Projects) Limit(dir, scratch *os.File, bytes int64) error {
	if on, err := p.kernel.enforced(dir); err != nil {
		return err
	} else if !on {
		return ErrNone
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	recorded, err := readRecord(scratch)
	if err != nil {
		return err
	}
	has, err := p.kernel.project(dir)
	if err != nil {
		return err
	}
	if recorded != 0 && recorded == has {
		return p.kernel.setLimit(dir, has, bytes)
	}
	if empty, err := isEmpty(dir); err != nil || !empty {
		return err
	}
	// After a crash, a recorded ID that was not assigned may belong to another
	// directory now, so take a new one.
	id, err := p.freeID(dir)
	if err != nil {
		return err
	}
	if err := writeRecord(scratch, id); err != nil {
		return err
	}
	if err := p.kernel.setLimit(dir, id, bytes); err != nil {
		return err
	}
	return p.kernel.setProject(dir, id)
}

// Release removes the limit recorded in scratch, after the limited directory was
// removed. scratch must be on the same file system. A missing record is not an error.
func (p *Projects) Release(scratch *os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := readRecord(scratch)
	if err != nil || id == 0 {
		return err
	}
	a, err := p.kernel.quota(scratch, id)
	if err != nil {
		return err
	}
	// If the project is in use, it belongs to another directory: a crash kept this
	// record's directory from getting the ID, and it was given again.
	if a.limited && !a.used {
		err = p.kernel.setLimit(scratch, id, 0)
	}
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(int(scratch.Fd()), record, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: scratch.Name() + "/" + record, Err: err}
	}
	return nil
}

// freeID returns a project ID that is not taken.
func (p *Projects) freeID(dir *os.File) (uint32, error) {
	var taken []uint32
	for _, file := range p.taken {
		some, err := takenBy(file)
		if err != nil {
			return 0, err
		}
		taken = append(taken, some...)
	}
	for range ids {
		id := firstID + p.next%ids
		p.next++
		if slices.Contains(taken, id) {
			continue
		}
		a, err := p.kernel.quota(dir, id)
		if err != nil {
			return 0, err
		}
		if !a.used && !a.limited {
			return id, nil
		}
	}
	return 0, fmt.Errorf("no project ID from %d to %d is free", firstID, firstID+ids-1)
}

// takenBy returns the IDs that a file lists. A missing file is not an error.
func takenBy(file string) ([]uint32, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []uint32
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		for field := range strings.SplitSeq(lines.Text(), ":") {
			if id, err := strconv.ParseUint(strings.TrimSpace(field), 10, 32); err == nil {
				all = append(all, uint32(id))
			}
		}
	}
	return all, lines.Err()
}

func isEmpty(dir *os.File) (bool, error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer f.Close()
	names, err := f.Readdirnames(1)
	if len(names) == 0 && errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// readRecord returns the recorded ID, or 0 if there is no valid one.
func readRecord(scratch *os.File) (uint32, error) {
	fd, err := unix.Openat(int(scratch.Fd()), record, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: scratch.Name() + "/" + record, Err: err}
	}
	defer unix.Close(fd)
	var b [maxRecord]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: scratch.Name() + "/" + record, Err: err}
	}
	id, err := strconv.ParseUint(string(b[:n]), 10, 32)
	if err != nil || id < firstID || id >= firstID+ids {
		return 0, nil //nolint:nilerr // cut off by a crash: the project was not assigned yet
	}
	return uint32(id), nil
}

func writeRecord(scratch *os.File, id uint32) error {
	fd, err := unix.Openat(int(scratch.Fd()), record,
		unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, recordMode)
	if err != nil {
		return &os.PathError{Op: "create", Path: scratch.Name() + "/" + record, Err: err}
	}
	f := os.NewFile(uintptr(fd), scratch.Name()+"/"+record)
	defer f.Close()
	if _, err := f.WriteString(strconv.FormatUint(uint64(id), 10)); err != nil {
		return err
	}
	return f.Sync()
}
