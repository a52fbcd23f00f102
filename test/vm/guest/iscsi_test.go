//go:build vm

package guest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	configFS  = "/sys/kernel/config/target"
	initiator = "iqn.2024-01.test.csi-volmgr:initiator" // as in build.sh
	password  = "twelve-or-more-characters"
)

// backstore makes a disk of the kernel's target (LIO) and returns its directory in
// configfs. The disk is a loop device, so that it can grow.
func backstore(t *testing.T, name string, megabytes int) string {
	t.Helper()
	for _, module := range []string{"loop", "target_core_mod", "target_core_file", "sd_mod"} {
		sh(t, "modprobe", module)
	}
	image := "/" + name + ".img"
	sh(t, "truncate", "-s", fmt.Sprintf("%dM", megabytes), image)
	loop := strings.TrimSpace(sh(t, "/sbin/losetup", "--find", "--show", image))
	dir := mkdir(t, filepath.Join(configFS, "core", "fileio_0", name))
	write(t, dir+"/control", fmt.Sprintf("fd_dev_name=%s,fd_dev_size=%d", loop, megabytes<<20))
	write(t, dir+"/wwn/vpd_unit_serial", name) // the kernel makes the WWID from it
	write(t, dir+"/enable", "1")
	return dir
}

// grow enlarges a disk of backstore.
func grow(t *testing.T, name string, megabytes int) {
	t.Helper()
	sh(t, "truncate", "-s", fmt.Sprintf("%dM", megabytes), "/"+name+".img")
	loop, _, _ := strings.Cut(sh(t, "/sbin/losetup", "-j", "/"+name+".img"), ":")
	sh(t, "/sbin/losetup", "-c", loop)
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}

// serveISCSI makes a target with the disks as its units, at two portals. Without
// CHAP it accepts every initiator.
func serveISCSI(t *testing.T, iqn string, chap bool, disks ...string) {
	t.Helper()
	for _, module := range []string{"iscsi_target_mod", "iscsi_tcp"} {
		sh(t, "modprobe", module)
	}
	group := mkdir(t, filepath.Join(configFS, "iscsi", iqn, "tpgt_1"))
	acl := mkdir(t, filepath.Join(group, "acls", initiator))
	for i, dir := range disks {
		lun := mkdir(t, fmt.Sprintf("%s/lun/lun_%d", group, i))
		link(t, dir, lun+"/disk")
		link(t, lun, mkdir(t, fmt.Sprintf("%s/lun_%d", acl, i))+"/unit")
	}
	authentication := "0"
	if chap {
		authentication = "1"
		write(t, acl+"/auth/userid", "user")
		write(t, acl+"/auth/password", password)
	}
	write(t, group+"/attrib/authentication", authentication)
	mkdir(t, group+"/np/127.0.0.1:3260")
	mkdir(t, group+"/np/127.0.0.1:3261")
	write(t, group+"/enable", "1")
	if _, err := os.Stat("/run/iscsid.pid"); err != nil {
		sh(t, "iscsid")
	}
}

// iscsiNode is a node with the driver under test.
type iscsiNode struct {
	*testing.T
	layout  state.Layout
	driver  *away.Driver
	volumes []state.Volume // the journal
	secret  map[string]string
}

func newISCSI(t *testing.T) *iscsiNode {
	n := &iscsiNode{T: t, layout: layout(t)}
	n.driver = away.New(away.Config{
		Kind: iscsi.Kind, Layout: n.layout, Helpers: newHelpers(t),
		Secret:  func(context.Context, state.SecretRef) (map[string]string, error) { return n.secret, nil },
		Volumes: func() []state.Volume { return n.volumes },
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	return n
}

// volume adds a volume to the journal.
func (n *iscsiNode) volume(name string, src corev1.ISCSIVolumeSource) state.Volume {
	v := staged(n.T, n.layout, iscsi.Kind, name, src)
	n.volumes = append(n.volumes, v)
	return v
}

func staged(t *testing.T, l state.Layout, kind state.DriverName, name string, src any) state.Volume {
	t.Helper()
	id := state.SharedID(kind, name)
	v := volume(t, l, state.Spec{Driver: kind, Name: name, Mode: state.Filesystem, StagePath: l.BuiltinStagePath(kind, id)}, src, pod)
	v.Stage.Phase = state.Entering
	return v
}

// up stages and publishes v and returns the path in the pod's directory.
func (n *iscsiNode) up(v state.Volume) string {
	n.Helper()
	stage(n.T, n.driver, v)
	if err := n.driver.Publish(n.Context(), v, pod); err != nil {
		n.Fatal(err)
	}
	return v.Mounts[pod].Target
}

// down unpublishes and unstages v and removes it from the journal.
func (n *iscsiNode) down(v state.Volume) {
	n.Helper()
	if err := n.driver.Unpublish(n.Context(), v, pod); err != nil {
		n.Fatal(err)
	}
	if err := n.driver.Unstage(n.Context(), v); err != nil {
		n.Fatal(err)
	}
	n.volumes = slices.DeleteFunc(n.volumes, func(o state.Volume) bool { return o.ID == v.ID })
}

func entries(t *testing.T, pattern string) int {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func bytesOf(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * int64(st.Bsize)
}

// Two units of one target with CHAP share a session; a wrong password gets none.
// One unit grows while mounted. The session ends with the last volume, and the data
// is there the next time.
//
// Items: M11.
func TestISCSIWithCHAPAndTwoUnitsOfOneSession(t *testing.T) {
	const iqn = "iqn.2024-01.test.csi-volmgr:chap"
	serveISCSI(t, iqn, true, backstore(t, "one", 64), backstore(t, "two", 64))
	n := newISCSI(t)
	src := corev1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", IQN: iqn, Lun: 0, SessionCHAPAuth: true}
	one := n.volume("one", src)
	src.Lun = 1
	two := n.volume("two", src)
	n.secret = map[string]string{"node.session.auth.username": "user", "node.session.auth.password": "not-the-password"}
	if err := n.driver.Stage(t.Context(), one); err == nil || strings.Contains(err.Error(), "not-the-password") {
		t.Fatalf("with the wrong password: %v", err)
	}
	n.secret["node.session.auth.password"] = password
	a, b := n.up(one), n.up(two)
	if got := entries(t, "/sys/class/iscsi_session/session*"); got != 1 {
		t.Errorf("%d sessions, want 1", got)
	}
	write(t, a+"/file", "on one")
	write(t, b+"/file", "on two")
	t.Logf("two units mounted: %s; %s", mountOf(t, a), mountOf(t, b))

	before := bytesOf(t, a)
	grow(t, "one", 128)
	size, err := n.driver.Expand(t.Context(), one, pod, 128<<20)
	if after := bytesOf(t, a); err != nil || size != 128<<20 || after < before*3/2 {
		t.Errorf("grown online: %d bytes, %v; the file system had %d and has %d", size, err, before, after)
	}

	n.down(one)
	if got := entries(t, "/sys/class/iscsi_session/session*"); got != 1 || read(t, b+"/file") != "on two" {
		t.Errorf("the first went: %d sessions, want 1", got)
	}
	n.down(two)
	wantNoISCSI(t, iqn)
	n.volumes = append(n.volumes, one)
	if got := read(t, n.up(one)+"/file"); got != "on one" {
		t.Errorf("the second time: %q", got)
	}
	n.down(one)
	wantNoISCSI(t, iqn)
}

func wantNoISCSI(t *testing.T, iqn string) {
	t.Helper()
	for what, pattern := range map[string]string{
		"sessions": "/sys/class/iscsi_session/session*", "disks": "/sys/block/sd*", "records": "/etc/iscsi/nodes/" + iqn, "discoveries": "/etc/iscsi/send_targets/*",
	} {
		if got := entries(t, pattern); got != 0 {
			t.Errorf("%d %s left", got, what)
		}
	}
}

// A raw block volume is the disk's own device node. The driver formats nothing, the
// volume grows while the pod has it open, and the data is there the next time.
//
// Items: M11.
func TestISCSIRawBlock(t *testing.T) {
	const iqn = "iqn.2024-01.test.csi-volmgr:block"
	serveISCSI(t, iqn, false, backstore(t, "raw", 64))
	n := newISCSI(t)
	v := n.volume("raw", corev1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", IQN: iqn})
	v.Spec.Mode = state.Block
	n.volumes[0] = v
	node := n.up(v)
	useBlock(t, node, "/raw.img", "raw over iscsi")
	open, err := os.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	grow(t, "raw", 128)
	if size, err := n.driver.Expand(t.Context(), v, pod, 128<<20); err != nil || size != 128<<20 {
		t.Errorf("grown: %d, %v", size, err)
	}
	wantSize(t, node, 128<<20)
	if err := open.Close(); err != nil {
		t.Error(err)
	}
	n.down(v)
	wantNoISCSI(t, iqn)
	n.volumes = append(n.volumes, v)
	if got := readAt(t, n.up(v), 1<<20, len("raw over iscsi")); got != "raw over iscsi" {
		t.Errorf("the second time: %q", got)
	}
	n.down(v)
	wantNoISCSI(t, iqn)
}

// addLeftOutPath removes a path from a multipath map and has the driver's Host ask for it.
func addLeftOutPath(t *testing.T) {
	t.Helper()
	slaves, err := filepath.Glob("/sys/block/dm-*/slaves/sd*")
	if err != nil || len(slaves) == 0 {
		t.Fatalf("no path is in a map: %v", err)
	}
	slave := slaves[0]
	in := filepath.Dir(slave)
	siblings, err := os.ReadDir(in)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, s := range siblings {
		paths = append(paths, s.Name())
	}
	sh(t, "multipath", "-c", "/dev/"+filepath.Base(slave)) // succeeds for a path of a disk that is to have a map
	sh(t, "multipathd", "del", "path", filepath.Base(slave))
	await(t, "the path to leave its map", func() bool { return entries(t, in+"/*") == len(paths)-1 })
	h := disk.NewHost(new(program.Runner).Run)
	d, err := h.Found(paths)
	if err == nil {
		d, err = h.CombinePaths(t.Context(), d)
	}
	if err != nil || d.Map == "" {
		t.Fatalf("paths %v: %+v, %v", paths, d, err)
	}
	await(t, "the path to be in its map again", func() bool { return entries(t, in+"/*") == len(paths) })
}

// farPortal is the address of a portal that lose can make silent.
const farPortal = "192.0.2.3"

// Two portals make one multipath device. While one portal is silent, the volume
// keeps working, can be unstaged, and can be staged again. A raw block volume is
// the multipath device itself.
//
// Items: M11.
func TestISCSIMultipath(t *testing.T) {
	const iqn = "iqn.2024-01.test.csi-volmgr:multipath"
	write(t, "/etc/multipath.conf", "defaults {\n find_multipaths no\n user_friendly_names yes\n no_path_retry 5\n polling_interval 1\n fast_io_fail_tmo 3\n}\n")
	sh(t, "modprobe", "dm_multipath")
	sh(t, "multipathd")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("sh", "-c", "multipathd show maps topology; multipathd show paths; ls -d /sys/block/dm-*/slaves/*; ls /sys/block; dmesg | tail -n 60").CombinedOutput()
			t.Logf("%s", out)
		}
	})
	serveISCSI(t, iqn, false, backstore(t, "many", 64), backstore(t, "bare", 64))
	gain(t, farPortal)
	mkdir(t, filepath.Join(configFS, "iscsi", iqn, "tpgt_1", "np", farPortal+":3260"))
	n := newISCSI(t)
	src := corev1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", Portals: []string{farPortal + ":3260"}, IQN: iqn}
	v := n.volume("many", src)
	src.Lun = 1
	raw := n.volume("bare", src)
	raw.Spec.Mode = state.Block
	n.volumes[1] = raw
	dir, node := n.up(v), n.up(raw)
	if got := mountOf(t, dir); !strings.Contains(got, "/dm-") {
		t.Errorf("mounted: %s, want a map", got)
	}
	// A map works from its first path on; multipathd adds the others as they
	// appear.
	await(t, "two paths below each map", func() bool { return entries(t, "/sys/block/dm-*/slaves/sd*") == 4 })
	addLeftOutPath(t)
	write(t, dir+"/file", "x")
	useBlock(t, node, "/bare.img", "raw over two paths")

	lose(t, farPortal)
	for round := range 4 { // so that either path has its turn
		write(t, dir+"/file", strings.Repeat("y", 1<<16)+strconv.Itoa(round))
		sh(t, "sync", "-f", dir)
		useBlock(t, node, "/bare.img", "raw with a path lost "+strconv.Itoa(round))
	}
	n.down(v)
	if got := entries(t, "/sys/class/iscsi_session/session*"); got != 2 {
		t.Errorf("one volume of two went: %d sessions, want 2", got)
	}
	n.down(raw)
	wantNoISCSI(t, iqn)
	// multipathd may make a map again before its paths go, and then removes it.
	await(t, "the maps to go", func() bool { return entries(t, "/sys/block/dm-*") == 0 })

	n.volumes = append(n.volumes, v)
	dir = n.up(v)
	if got := read(t, dir+"/file"); !strings.HasSuffix(got, "y3") {
		t.Errorf("with one portal that answers: %.20q", got)
	}
	if got := entries(t, "/sys/class/iscsi_session/session*"); got != 1 {
		t.Errorf("%d sessions, want 1", got)
	}
	n.down(v)
	wantNoISCSI(t, iqn)
}
