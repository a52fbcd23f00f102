package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// The modes of what is made, regardless of the umask. The kubelet uses the same.
	dirMode  = 0o755
	fileMode = 0o644
	// maxRaces is how often an open is retried if the file appears and disappears
	// meanwhile.
	maxRaces = 16
)

// formats are the file formats (stat(2)) of the types that require one.
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

// ensureType returns nil once something of the type is at a clean path that is allowed.
// Without a type, anything at the path will do, and also nothing.
func ensureType(allow []string, path string, kind corev1.HostPathType) error {
	if _, ok := formats[kind]; !ok && kind != corev1.HostPathUnset {
		return fmt.Errorf("%w: unknown type %q", ErrDenied, kind)
	}
	f, err := find(allow, path, kind)
	if errors.Is(err, fs.ErrNotExist) && kind == corev1.HostPathUnset && Allowed(existing(allow), path) != "" {
		return nil
	}
	if err != nil {
		return absent(kind, err)
	}
	defer f.Close()
	return checkType(f, kind)
}

// absent returns err, and says that nothing of the type is there if that is its meaning.
func absent(kind corev1.HostPathType, err error) error {
	want, ok := formats[kind]
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%s: there is no %s: %w", typeCheck, want.name, err)
}

// checkType returns nil if the open file is of the type.
func checkType(f *os.File, kind corev1.HostPathType) error {
	want, ok := formats[kind]
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if ok && st.Mode&unix.S_IFMT != want.format {
		return fmt.Errorf("%w: it is not a %s", ErrType, want.name)
	}
	return nil
}
