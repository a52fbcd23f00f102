package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxSocket is the longest path of a unix socket (unix(7), sun_path less its NUL).
	maxSocket = 107
	// lowSpace is the share of bytes or inodes, in percent, below which a disk is about full.
	lowSpace = 5
	// wantFiles is how many descriptors a daemon with many volumes and calls may have open.
	wantFiles = 8192
	// wantWatches is how many directories and files may have to be watched.
	wantWatches = 8192
	// highMounts is the share of the mounts that a namespace may have, in percent,
	// beyond which there is little room for more.
	highMounts = 80
)

// nearest is the path itself, or the directory above it that is there: where it
// will be made.
func nearest(path string) string {
	for path != "/" {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// places looks at the daemon's directories.
func (e *examination) places() {
	e.place("root", e.Root)
	e.place("state", e.StateDir)
	at := nearest(e.Root)
	switch shared, err := e.Shared(at); {
	case err != nil:
		e.warn("root.propagation", "not known: "+err.Error(), "see that "+at+
			" is on a shared mount (findmnt -o TARGET,PROPAGATION)")
	case !shared:
		e.warn("root.propagation", at+" is not on a shared mount",
			"drivers in containers and csi-volmgr do not see each other's mounts: mount --make-rshared / (or, for the "+
				"directory alone, bind it to itself first)")
	default:
		e.ok("root.propagation", "shared")
	}
	switch why, err := e.Kubelet(e.Root); {
	case err != nil:
		e.warn("root.kubelet", "not known: "+err.Error(), "see that no kubelet runs on "+e.Root)
	case why != "":
		e.fail("root.kubelet", "a kubelet runs on "+e.Root+": "+why,
			"stop it (csi-volmgr adopt takes its volumes over), or choose another --root-dir")
	default:
		e.ok("root.kubelet", "none runs on "+e.Root)
	}
}

// place looks at the file system that a directory is or will be on.
func (e *examination) place(name, dir string) {
	at := nearest(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		e.fail(name+".directory", at+": "+err.Error(), "see that it can be used")
		return
	}
	info, err := os.Stat(at)
	switch {
	case err != nil:
		e.fail(name+".directory", err.Error(), "see that it can be used")
	case !info.IsDir():
		e.fail(name+".directory", at+" is no directory", "move it away")
	case st.Flags&unix.ST_RDONLY != 0:
		e.fail(name+".directory", at+" is read-only", "have it on a file system that can be written to")
	case at == dir && info.Mode().Perm()&0o022 != 0:
		e.fail(name+".directory", fmt.Sprintf("%s has mode %04o", dir, info.Mode().Perm()),
			"others than root can write there: chmod go-w "+dir)
	case name == "root" && st.Flags&unix.ST_NODEV != 0:
		e.warn(name+".directory", at+" is mounted with nodev", "raw block volumes do not work below it: mount -o remount,dev")
	default:
		e.ok(name+".directory", at)
	}
	e.space(name+".space", "bytes", "have more space on "+at,
		[2]uint64{st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize)})
	if st.Files > 0 { // btrfs and some others count none
		e.space(name+".inodes", "inodes", "have more inodes on "+at, [2]uint64{st.Ffree, st.Files})
	}
}

// space looks at what is free of a whole.
func (e *examination) space(check, of, advice string, free [2]uint64) {
	found := fmt.Sprintf("%d of %d %s free", free[0], free[1], of)
	switch {
	case free[0] == 0:
		e.fail(check, found, advice+": nothing can be begun without")
	case free[0]/max(1, free[1]/100) < lowSpace:
		e.warn(check, found, advice)
	default:
		e.ok(check, found)
	}
}

// sockets looks at the daemon's and those of registrars.
func (e *examination) sockets() {
	switch why := e.socket(e.Socket); {
	case len(e.Socket) > maxSocket:
		e.fail("socket.api", fmt.Sprintf("%s has %d bytes", e.Socket, len(e.Socket)),
			fmt.Sprintf("choose a --socket of at most %d bytes", maxSocket))
	case why == "":
		e.ok("socket.api", "a daemon answers at "+e.Socket)
	default:
		e.ok("socket.api", "no daemon answers at "+e.Socket+": "+why)
	}
	if n := len(filepath.Join(e.Root, "plugins", "a.driver.of.usual.length", "csi.sock")); n > maxSocket {
		e.warn("socket.drivers", fmt.Sprintf("sockets below %s have paths of about %d bytes", e.Root, n),
			fmt.Sprintf("of more than %d none can be made: choose a shorter --root-dir", maxSocket))
	}
	found, _ := filepath.Glob(filepath.Join(e.RegistrationDir, "*.sock")) // the pattern is good
	for _, path := range found {
		check := "socket." + strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".sock"), "-reg")
		if why := e.socket(path); why != "" {
			e.warn(check, path+": "+why, "start the driver's registrar, or remove the socket if the driver is gone")
		} else {
			e.ok(check, path+" answers")
		}
	}
}

// socket says why no process answers at a socket; "" if one does.
func (e *examination) socket(path string) string {
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close() // nothing was said
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "it is not there"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no program listens on it"
	}
	return err.Error()
}

// limits looks at what the kernel lets one have.
func (e *examination) limits() {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		e.warn("limit.files", err.Error(), "see that the daemon may have "+strconv.Itoa(wantFiles)+" files open")
	} else if files.Max < wantFiles {
		e.warn("limit.files", fmt.Sprintf("%d may be open", files.Max),
			fmt.Sprintf("have at least %d (LimitNOFILE= of the unit)", wantFiles))
	} else {
		e.ok("limit.files", fmt.Sprintf("%d may be open", files.Max))
	}
	e.sysctl("limit.watches", "fs/inotify/max_user_watches", wantWatches)
	e.sysctl("limit.watchers", "fs/inotify/max_user_instances", 128)
	limit, okLimit := e.number("fs/mount-max")
	table, err := e.file("proc/self/mountinfo")
	if !okLimit || err != nil {
		return // a kernel without the limit, or no /proc, which is told already
	}
	n := bytes.Count(table, []byte("\n"))
	found := fmt.Sprintf("%d of at most %d", n, limit)
	if n*100 > limit*highMounts {
		e.warn("limit.mounts", found, "sysctl -w fs.mount-max="+strconv.Itoa(2*limit))
	} else {
		e.ok("limit.mounts", found)
	}
}

func (e *examination) number(sysctl string) (int, bool) {
	b, err := e.file(filepath.Join("proc/sys", sysctl))
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// sysctl looks whether a limit of the kernel is at least as high as wanted.
func (e *examination) sysctl(check, name string, want int) {
	n, ok := e.number(name)
	switch {
	case !ok:
		e.warn(check, "not known", "see that /proc/sys/"+name+" is at least "+strconv.Itoa(want))
	case n < want:
		e.warn(check, strconv.Itoa(n), fmt.Sprintf("sysctl -w %s=%d", strings.ReplaceAll(name, "/", "."), want))
	default:
		e.ok(check, strconv.Itoa(n))
	}
}
