package hostpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// walk resolves a path element by element on descriptors, and decides about each
// symbolic link. A link on the way to an allowed directory is the operator's, so it is
// followed. A link below an allowed directory may have been made by a container; after
// such a link, every step must stay in an allowed directory or on the way to one.
type walk struct {
	// roots are the allowed directories that lie below no other one. Inside another
	// one, a container may have replaced them.
	roots []string
	// real are the existing roots with symbolic links resolved.
	real []string
	// making is the type to make if nothing is there.
	making corev1.HostPathType

	at     []position // the current position, and its parents up to "/"
	links  []string   // paths of the links that were followed
	strict bool       // followed a link that a container may have made
}

// position is a directory, or at the end a file, that the walk has reached.
type position struct {
	fd   int
	path string // without symbolic links
}

// find opens what is at a clean path below one of the allowed directories, as an O_PATH
// descriptor. The file's name is the path without symbolic links.
func find(allow []string, path string, making corev1.HostPathType) (*os.File, error) {
	w := walk{making: making}
	for _, r := range trusted(allow) {
		w.roots = append(w.roots, r.listed)
		if r.real != "" {
			w.real = append(w.real, r.real)
		}
	}
	root := Allowed(w.roots, path)
	if root == "" {
		return nil, fmt.Errorf("%w: it is not at or below any of the paths that the node's operator allows [%s] "+
			"(--host-path-allow)",
			ErrDenied, strings.Join(allow, ", "))
	}
	defer w.close()
	if err := w.enter(root); err != nil {
		return nil, err
	}
	if err := w.follow(strings.TrimPrefix(path, root)); err != nil {
		return nil, err
	}
	if here := w.position(); !w.allowed(here.path) {
		return nil, w.denied(here.path)
	}
	last := w.position()
	w.at = w.at[:len(w.at)-1]
	return os.NewFile(uintptr(last.fd), last.path), nil
}

// Roots returns the existing allowed directories with symbolic links resolved. It omits
// a directory below another one, which may be a container's link.
func Roots(allow []string) (real []string) {
	for _, r := range trusted(allow) {
		if r.real != "" {
			real = append(real, r.real)
		}
	}
	return real
}

// existing returns the existing roots as the operator listed them.
func existing(allow []string) (listed []string) {
	for _, r := range trusted(allow) {
		if r.real != "" {
			listed = append(listed, r.listed)
		}
	}
	return listed
}

// root is an allowed directory that lies below no other one.
type root struct {
	listed string
	real   string   // without symbolic links; "" if it does not exist
	links  []string // paths of the links on the way to it
}

// trusted returns the roots that no container can have redirected. It omits a root that
// is reached through a link inside the directory that another root leads to, since a
// container may have made that link. Which of two such roots is genuine cannot be
// determined.
func trusted(allow []string) (roots []root) {
	outer := outermost(allow)
	var all []root
	for _, listed := range outer {
		r := root{listed: listed}
		w := walk{roots: outer}
		if err := w.enter(listed); err == nil {
			r.real, r.links = w.position().path, w.links
		}
		w.close()
		all = append(all, r)
	}
	for _, r := range all {
		if !slices.ContainsFunc(all, func(o root) bool {
			return o.listed != r.listed && o.real != "" && slices.ContainsFunc(r.links, func(link string) bool {
				return pathname.Within(link, o.real)
			})
		}) {
			roots = append(roots, r)
		}
	}
	return roots
}

// outermost returns the directories that lie below no other one.
func outermost(dirs []string) (roots []string) {
	for _, dir := range dirs {
		if !slices.ContainsFunc(dirs, func(o string) bool { return o != dir && pathname.Within(dir, o) }) {
			roots = append(roots, dir)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(roots)))
}

func (w *walk) position() position { return w.at[len(w.at)-1] }

func (w *walk) close() {
	for _, p := range w.at {
		unix.Close(p.fd)
	}
	w.at = nil
}

// allowed reports whether a path without symbolic links is allowed.
func (w *walk) allowed(path string) bool {
	return Allowed(w.roots, path) != "" || Allowed(w.real, path) != ""
}

// above reports whether an allowed directory lies at or below the path.
func (w *walk) above(path string) bool {
	over := func(dir string) bool { return pathname.Within(dir, path) }
	return slices.ContainsFunc(w.roots, over) || slices.ContainsFunc(w.real, over)
}

func (w *walk) denied(path string) error {
	return fmt.Errorf("%w: a symbolic link in it leads to %s, which is not at or below any of the paths that the node's "+
		"operator allows [%s] (--host-path-allow): %w",
		ErrDenied, path, strings.Join(w.roots, ", "), unix.ELOOP)
}

// enter goes from the root of the file system to an allowed directory.
func (w *walk) enter(root string) error {
	making := w.making
	w.making = corev1.HostPathUnset // a missing allowed directory is not made
	defer func() { w.making = making }()
	if err := w.restart(); err != nil {
		return err
	}
	if err := w.follow(root); err != nil {
		return fmt.Errorf("open the allowed directory %s: %w", root, err)
	}
	if here := w.position().path; w.strict && !w.allowed(here) {
		return w.denied(here)
	}
	return nil
}

// restart moves the walk to the root of the file system.
func (w *walk) restart() error {
	w.close()
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	w.at = []position{{fd, "/"}}
	return nil
}

// follow goes along rel from the current position.
func (w *walk) follow(rel string) error {
	rest := elements(rel)
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		if elem == ".." {
			if len(w.at) > 1 { // the parent of "/" is "/"
				unix.Close(w.position().fd)
				w.at = w.at[:len(w.at)-1]
			}
			continue
		}
		target, err := w.step(elem, len(rest) == 0)
		if err != nil {
			return err
		}
		if strings.HasPrefix(target, "/") {
			if err := w.restart(); err != nil {
				return err
			}
		}
		rest = append(elements(target), rest...)
	}
	return nil
}

func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(e string) bool { return e == "" || e == "." })
}

// step goes to one element of the current directory, after making it if it is missing
// and may be made. For a symbolic link, it stays and returns the link's target.
func (w *walk) step(elem string, last bool) (target string, err error) {
	path := filepath.Join(w.position().path, elem)
	if w.strict && !w.allowed(path) && !w.above(path) {
		return "", w.denied(path)
	}
	fd, err := w.open(elem, path, last)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.at = append(w.at, position{fd, path})
		return "", nil
	}
	defer unix.Close(fd)
	if w.links = append(w.links, path); len(w.links) > maxLinks {
		return "", fmt.Errorf("%w: %s leads through more than %d symbolic links: %w", ErrDenied, path, maxLinks, unix.ELOOP)
	}
	if w.allowed(path) && !slices.Contains(w.roots, path) {
		w.strict = true
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return string(buf[:n]), nil
}

// open opens one element of the current directory.
func (w *walk) open(elem, path string, last bool) (fd int, err error) {
	for range maxRaces {
		fd, err = unix.Openat(w.position().fd, elem, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.ENOENT) {
			break
		}
		if !w.allowed(w.position().path) {
			break
		}
		made := false
		switch {
		case w.making == corev1.HostPathDirectoryOrCreate:
			made, err = true, makeDir(w.position().fd, elem)
		case w.making == corev1.HostPathFileOrCreate && last:
			made, err = true, makeFile(w.position().fd, elem)
		case w.making == corev1.HostPathFileOrCreate:
			return -1, fmt.Errorf("a file is made only in an existing directory: %w",
				&os.PathError{Op: "open", Path: path, Err: err})
		}
		if !made || err != nil && !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// makeDir makes a directory. It is not an error if another process made it meanwhile.
func makeDir(dir int, name string) error {
	err := unix.Mkdirat(dir, name, dirMode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, dirMode)
}

// makeFile makes an empty file. It is not an error if another process made it
// meanwhile.
func makeFile(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, fileMode)
}
