package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// writer is a process that has a file open and appends to it what it reads.
type writer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// newWriter starts a writer that opens the file log in dir and then unmounts dir lazily. If own is set, it has a mount
// namespace of its own and unmounts there what all nodes of this suite have.
func newWriter(t *testing.T, dir string, own bool) *writer {
	t.Helper()
	const (
		open  = `exec 7>>"$0/log" && `
		write = ` && echo open && while read line; do echo "$line" >&7 && echo written; done`
	)
	w := &writer{cmd: exec.Command("sh", "-c", open+`umount -l "$0"`+write, dir)}
	if own {
		w.cmd = exec.Command("sh", "-c", open+`awk -v d="$1" 'index($2, d) == 1 { print $2 }' /proc/self/mounts | xargs umount -l`+write,
			dir, filepath.Dir(filepath.Dir(dir))+"/node-")
	}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if own {
		w.cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	in, err := w.cmd.StdinPipe()
	must(t, err)
	out, err := w.cmd.StdoutPipe()
	must(t, err)
	w.cmd.Stderr = os.Stderr
	must(t, w.cmd.Start())
	t.Cleanup(w.end)
	w.in = in
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the writer says %q, %v", line, err)
	}
	fmt.Fprintln(in, "of the writer")
	if line, err := said.ReadString('\n'); err != nil || line != "written\n" {
		t.Fatalf("the writer says %q, %v", line, err)
	}
	return w
}

func (w *writer) end() {
	_ = w.in.Close()
	_ = w.cmd.Wait()
}

// namedVolume returns a volume as the daemon last saw it.
func (n *node) namedVolume(name string) (found server.NamedVolume) {
	n.T.Helper()
	all, err := n.API.NamedVolumes(n.T.Context())
	must(n.T, err)
	for _, v := range all {
		if v.Name == name {
			found = v
		}
	}
	return found
}

// podman's local driver and many people unmount lazily. The volume stays, with its data, while a process has a file of it
// open, and another volume of the same file system does not.
func TestLazilyUnmountedVolumeStaysWhileAProcessWrites(t *testing.T) {
	harness.MountHelper(t, program)
	plain := kinds()[0]
	trees := plain
	trees.params = map[string]string{"type": "directory"}
	for name, tc := range map[string]struct {
		kind
		own bool
	}{
		"a file system of its own":           {plain, false},
		"a directory beside another":         {trees, false},
		"a writer in a namespace of its own": {plain, true},
	} {
		if tc.params != nil && !tc.local {
			continue // the strict driver's volumes are directories anyway
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tc.kind)
			n.Apply(tc.class())
			n.stays(tc.own)
		})
	}
}

// stays unmounts a volume lazily under a writer, and another one as usual.
func (n *node) stays(own bool) {
	t, p := n.T, n.driver.proxy
	srv, other := n.Path("srv"), n.Path("other")
	options := "socket=" + n.Socket + ",class=class,size=64Mi,reclaim=Delete"
	for dir, volume := range map[string]string{srv: "default/data", other: "default/other"} {
		must(t, os.Mkdir(dir, 0o755))
		host(t, "mount", "-t", "csi", "-o", options, volume, dir)
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	w := newWriter(t, srv, own)
	if own {
		host(t, "umount", srv)
	}
	host(t, "umount", other)
	who := fmt.Sprintf("process %d (sh)", w.cmd.Process.Pid)
	n.Eventually("the daemon to have looked who has the volumes", func() bool {
		held := slices.ContainsFunc(n.namedVolume("default/data").Holders, func(h string) bool { return strings.HasPrefix(h, who) })
		gone := n.namedVolume("default/data").Mountpoint == ""
		return (held || gone) && n.namedVolume("default/other").Mountpoint == ""
	})
	if n.namedVolume("default/data").Mountpoint == "" {
		t.Fatal("unmounted while a process writes to it")
	}
	if r := n.CLI("", "volume", "remove", "default/data"); r.Code == 0 || !strings.Contains(r.Stderr, who) ||
		!strings.Contains(r.Stderr, "unmounted lazily") || strings.Contains(r.Stderr, "umount DIRECTORY") {
		t.Errorf("removed while a process writes to it: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if said := n.CLI("", "explain", "pod", "mount.default.data"); !strings.Contains(said.Stdout, who) {
		t.Errorf("explain does not name the writer: %s", said.Stdout)
	}
	n.Do("", "volume", "remove", "default/other")
	if got := [3]int{p.count("NodeUnpublishVolume"), p.count("NodeUnstageVolume"), p.count("DeleteVolume")}; got != [3]int{1, 1, 1} {
		t.Errorf("%d calls of Unpublish, Unstage and Delete, want those of the other volume alone", got)
	}
	w.end()
	n.NoVolumes()
	host(t, "mount", "-t", "csi", "-o", options, "default/data", srv)
	wantFile(t, filepath.Join(srv, "log"), "of the writer\n")
	host(t, "umount", srv)
	n.NoVolumes()
	n.Do("", "volume", "remove", "default/data")
	n.nothingLeft()
}
