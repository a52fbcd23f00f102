package hostpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// Modes of what is made, whatever the umask; they are the kubelet's.
	dirMode  = 0o755
	fileMode = 0o644
	// maxRaces is how often what appears and disappears meanwhile is tried again.
	maxRaces = 16
)

// formats are the formats (stat(2)) of the types that name one.
var formats = map[corev1.HostPathType]struct {
	format uint32
	name   string
}{
	corev1.HostPathDirectory:         {unix.S_IFDIR, "directory"},
	corev1.HostPathDirectoryOrCreate: {unix.S_IFDIR, "directory"},
	corev1.HostPathFile:              {unix.S_IFREG, "file"},
	corev1.HostPathFileOrCreate:      {unix.S_IFREG, "file"},
	corev1.HostPathSocket:            {unix.S_IFSOCK, "socket"},
	corev1.HostPathCharDev:           {unix.S_IFCHR, "character device"},
	corev1.HostPathBlockDev:          {unix.S_IFBLK, "block device"},
}

// lookAt returns nil once something of the type is at rel beneath root. The
// path of root is the operator's, so links in it are followed.
func lookAt(root, rel string, kind corev1.HostPathType) error {
	want, ok := formats[kind]
	if !ok && kind != corev1.HostPathUnset {
		return fmt.Errorf("%w: there is no type %q", ErrDenied, kind)
	}
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the allowed directory: %w", &os.PathError{Op: "open", Path: root, Err: err})
	}
	defer unix.Close(top)
	fd, err := open(top, rel, unix.O_PATH)
	for range maxRaces {
		if !errors.Is(err, unix.ENOENT) {
			break
		}
		switch kind {
		case corev1.HostPathDirectoryOrCreate:
			err = makeDirs(top, rel)
		case corev1.HostPathFileOrCreate:
			err = makeFile(top, rel)
		case corev1.HostPathUnset:
			return nil // whatever is there, or is not, as far as no link leads on
		default:
			return err
		}
		if err == nil {
			fd, err = open(top, rel, unix.O_PATH)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: rel, Err: err}
	}
	if ok && st.Mode&unix.S_IFMT != want.format {
		return fmt.Errorf("want a %s: %w", want.name, ErrType)
	}
	return nil
}

// open opens rel beneath the directory dir; a symbolic link in it is ELOOP.
func open(dir int, rel string, flags uint64) (int, error) {
	fd, err := unix.Openat2(dir, rel, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Mode:    createMode(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, explain(rel, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		unix.Close(fd) // O_PATH opens the link itself
		return -1, explain(rel, unix.ELOOP)
	}
	return fd, nil
}

func createMode(flags uint64) uint64 {
	if flags&unix.O_CREAT == 0 {
		return 0
	}
	return fileMode
}

func explain(rel string, err error) error {
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%q is or has a symbolic link in it, which is not followed; name the path that it leads to: %w", rel, err)
	}
	return &os.PathError{Op: "open", Path: rel, Err: err}
}

// makeDirs makes the directories of rel that are missing, one beneath the other.
func makeDirs(top int, rel string) error {
	at, err := open(top, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	for elem := range strings.SplitSeq(rel, "/") {
		made := unix.Mkdirat(at, elem, dirMode)
		if made != nil && made != unix.EEXIST {
			return &os.PathError{Op: "mkdir", Path: rel, Err: made}
		}
		next, err := open(at, elem, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil && made == nil {
			err = os.NewSyscallError("fchmod", unix.Fchmod(next, dirMode))
		}
		if err != nil {
			if next >= 0 {
				unix.Close(next)
			}
			return err
		}
		unix.Close(at)
		at = next
	}
	return nil
}

// makeFile makes an empty file; its directory has to be there.
func makeFile(top int, rel string) error {
	dir, err := open(top, filepath.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("a file is made only in a directory that is there: %v", err) // not as ENOENT: trying again would not help
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := open(dir, filepath.Base(rel), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, fileMode))
}
