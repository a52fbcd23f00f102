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
	// lowSpace is the share of free bytes or inodes, in percent, below which a disk is nearly full.
	lowSpace = 5
	// wantFiles is how many descriptors a daemon with many volumes and calls may need.
	wantFiles = 8192
	// wantWatches is how many directories and files the daemon may have to watch.
	wantWatches = 8192
	// highMounts is the share of a namespace's allowed mounts, in percent, above which there is little
	// room for more.
	highMounts = 80
)

// nearest returns path, or its nearest parent that exists, below which it will be made.
func nearest(path string) string {
	for path != "/" {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// places checks the daemon's directories.
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

// place checks the file system that a directory is or will be on.
func (e *examination) place(name, dir string) {
	at := nearest(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		e.fail(name+".directory", at+": "+err.Error(), "make it usable")
		return
	}
	info, err := os.Stat(at)
	switch {
	case err != nil:
		e.fail(name+".directory", err.Error(), "make it usable")
	case !info.IsDir():
		e.fail(name+".directory", at+" is not a directory", "move it away")
	case st.Flags&unix.ST_RDONLY != 0:
		e.fail(name+".directory", at+" is read-only", "put it on a writable file system")
	case at == dir && info.Mode().Perm()&0o022 != 0:
		e.fail(name+".directory", fmt.Sprintf("%s has mode %04o", dir, info.Mode().Perm()),
			"users other than root can write there: chmod go-w "+dir)
	case name == "root" && st.Flags&unix.ST_NODEV != 0:
		e.warn(name+".directory", at+" is mounted with nodev", "raw block volumes do not work below it: mount -o remount,dev")
	default:
		e.ok(name+".directory", at)
	}
	e.space(name+".space", "bytes", "have more space on "+at,
		[2]uint64{st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize)})
	if st.Files > 0 { // btrfs and some others report none
		e.space(name+".inodes", "inodes", "have more inodes on "+at, [2]uint64{st.Ffree, st.Files})
	}
}

// space checks how much of a whole is free.
func (e *examination) space(check, of, advice string, free [2]uint64) {
	found := fmt.Sprintf("%d of %d %s free", free[0], free[1], of)
	switch {
	case free[0] == 0:
		e.fail(check, found, advice+": without it no call can start")
	case free[0]/max(1, free[1]/100) < lowSpace:
		e.warn(check, found, advice)
	default:
		e.ok(check, found)
	}
}

// sockets checks the daemon's socket and those of registrars.
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
			fmt.Sprintf("longer ones than %d cannot be made: choose a shorter --root-dir", maxSocket))
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

// socket returns why no process answers at a socket; "" if one does.
func (e *examination) socket(path string) string {
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close() // the check only connects
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "it does not exist"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no program listens on it"
	}
	return err.Error()
}

// limits checks the kernel's limits.
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
		return // a kernel without the limit, or no /proc, which another check reports
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

// sysctl checks whether a limit of the kernel is at least as high as wanted.
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
