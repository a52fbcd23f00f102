package beneath

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is how many links of a path the kernel follows.
	maxLinks = 40
	// maxDirs limits the descriptors of a walk, which links could make many.
	maxDirs = 512
	// identity opens a name for inspection alone: neither a link is followed nor a device or pipe touched.
	identity = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// Walk opens path, relative to dir, as openat2(2) does under the RESOLVE_ rules of how, except RESOLVE_CACHED, to a
// depth of maxDirs. It never follows a link by the kernel, only by its text, so a link of /proc leads nowhere that its
// text does not. ".." leads to the directory that the walk came from, whatever has been renamed. Without
// RESOLVE_BENEATH or RESOLVE_IN_ROOT, path must be absolute.
func Walk(dir int, path string, how *unix.OpenHow) (int, error) {
	w := walk{dirs: []int{dir}, how: how, flags: int(how.Flags)}
	defer w.up(1)
	if path == "" {
		return -1, unix.ENOENT
	}
	if !w.rule(unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT) {
		if path[0] != '/' {
			return -1, unix.EINVAL
		}
		root, err := retry(func() (int, error) { return unix.Open("/", identity, 0) })
		if err != nil {
			return -1, err
		}
		defer unix.Close(root)
		w.dirs[0] = root
	}
	if w.rule(unix.RESOLVE_NO_XDEV) {
		var err error
		if w.mount, err = mountOf(w.dirs[0]); err != nil {
			return -1, err
		}
	}
	if err := w.push(path); err != nil {
		return -1, err
	}
	return w.run()
}

// walk is a look-up that has opened dirs, each in the one before it. The first is the caller's.
type walk struct {
	dirs  []int
	todo  []string // the elements that are left
	links int      // followed
	mount uint64   // that of the first directory, with RESOLVE_NO_XDEV
	how   *unix.OpenHow
	flags int
}

func (w *walk) rule(r uint64) bool { return w.how.Resolve&r != 0 }

func (w *walk) at() int { return w.dirs[len(w.dirs)-1] }

// up closes the directories after the first n.
func (w *walk) up(n int) {
	for _, fd := range w.dirs[n:] {
		unix.Close(fd)
	}
	w.dirs = w.dirs[:n]
}

// push puts the elements of a path, or of a link's target, before those that are left.
func (w *walk) push(path string) error {
	if path[0] == '/' {
		if w.rule(unix.RESOLVE_BENEATH) {
			return unix.EXDEV
		}
		w.up(1)
	}
	var elems []string
	for elem := range strings.SplitSeq(path, "/") {
		if elem != "" {
			elems = append(elems, elem)
		}
	}
	if strings.HasSuffix(path, "/") {
		elems = append(elems, ".") // what is before the last slash must be a directory
	}
	w.todo = append(elems, w.todo...)
	return nil
}

func (w *walk) run() (int, error) {
	for {
		elem := w.todo[0]
		w.todo = w.todo[1:]
		var fd int
		var err error
		switch {
		case elem == "." || elem == "..":
			fd, err = w.stay(elem)
		case len(w.todo) == 0 && w.flags&unix.O_CREAT != 0 && w.flags&unix.O_EXCL != 0:
			return retry(func() (int, error) {
				return unix.Openat(w.at(), elem, w.flags|unix.O_NOFOLLOW, uint32(w.how.Mode))
			})
		default:
			fd, err = w.enter(elem)
		}
		if err != nil || fd >= 0 {
			return fd, err
		}
	}
}

// stay handles "." and "..". It returns a descriptor if the walk ends there, else -1.
func (w *walk) stay(elem string) (int, error) {
	switch {
	case elem == ".":
	case len(w.dirs) > 1:
		w.up(len(w.dirs) - 1)
	case w.rule(unix.RESOLVE_BENEATH):
		return -1, unix.EXDEV
	}
	if len(w.todo) > 0 {
		return -1, nil
	}
	return w.reopen(w.at())
}

// enter goes to the entry elem of the directory. It returns a descriptor if the walk ends there, else -1.
func (w *walk) enter(elem string) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(w.at(), elem, identity, 0) })
	if err != nil {
		return -1, err
	}
	kept := false
	defer func() {
		if !kept {
			unix.Close(fd)
		}
	}()
	kind, err := w.inspect(fd)
	last := len(w.todo) == 0
	switch {
	case err != nil:
		return -1, err
	case kind == unix.S_IFLNK:
		var ended bool
		if ended, err = w.follow(fd, last); err != nil || !ended {
			return -1, err
		}
		kept = true
		return fd, nil
	case !last && kind != unix.S_IFDIR:
		return -1, unix.ENOTDIR
	case !last && len(w.dirs) == maxDirs:
		return -1, unix.ENAMETOOLONG
	case !last:
		kept = true
		w.dirs = append(w.dirs, fd)
		return -1, nil
	case w.flags&unix.O_DIRECTORY != 0 && kind != unix.S_IFDIR:
		return -1, unix.ENOTDIR
	case w.flags&unix.O_PATH != 0:
		kept = true
		return fd, nil
	case kind == unix.S_IFDIR:
		return w.reopen(fd)
	}
	// By its descriptor, so that it is the file that was inspected.
	return retry(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), w.flags&^unix.O_NOFOLLOW&^unix.O_CREAT, 0)
	})
}

// inspect returns what kind of file fd is; an error if it is on another mount.
func (w *walk) inspect(fd int) (kind uint32, err error) {
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC // asks no storage, which may be away
	var st unix.Statx_t
	_, err = retry(func() (int, error) { return 0, unix.Statx(fd, "", flags, unix.STATX_TYPE, &st) })
	if err != nil {
		return 0, err
	}
	if w.rule(unix.RESOLVE_NO_XDEV) {
		id, err := mountOf(fd)
		if err != nil {
			return 0, err
		}
		if id != w.mount {
			return 0, unix.EXDEV
		}
	}
	return uint32(st.Mode) & unix.S_IFMT, nil
}

// follow puts the elements of a link's target before those that are left. It reports whether the walk ends at the
// link itself instead.
func (w *walk) follow(fd int, last bool) (ended bool, err error) {
	final := last && w.flags&unix.O_NOFOLLOW != 0
	switch {
	case final && w.flags&unix.O_DIRECTORY != 0:
		return false, unix.ENOTDIR
	case final && w.flags&unix.O_PATH != 0:
		return true, nil
	case final, w.rule(unix.RESOLVE_NO_SYMLINKS), w.links == maxLinks:
		return false, unix.ELOOP
	}
	w.links++
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return false, err
	}
	if n == 0 || n == len(buf) {
		return false, unix.ENOENT
	}
	return false, w.push(string(buf[:n]))
}

// reopen opens the directory behind fd with the flags of the caller.
func (w *walk) reopen(fd int) (int, error) {
	return retry(func() (int, error) { return unix.Openat(fd, ".", w.flags&^unix.O_NOFOLLOW, 0) })
}

// mountOf is [MountID] with the error of a system call alone, such as EMFILE.
func mountOf(fd int) (uint64, error) {
	id, err := MountID(fd)
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return 0, errno
	}
	return id, err
}
