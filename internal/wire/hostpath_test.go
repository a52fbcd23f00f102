package wire

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

const hostPathPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: below, mountPath: /below}
    - {name: file, mountPath: /file, readOnly: true}
    - {name: missing, mountPath: /missing}
    - {name: whole, mountPath: /whole}
    - {name: below, mountPath: /shared, mountPropagation: HostToContainer}
    - {name: below, mountPath: /both, mountPropagation: Bidirectional}
    securityContext: {privileged: true}
  volumes:
  - {name: below, hostPath: {path: DIR/team/data, type: Directory}}
  - {name: file, hostPath: {path: DIR/team/file}}
  - {name: missing, hostPath: {path: DIR/team/missing}}
  - {name: whole, hostPath: {path: DIR}}
`

// A container gets what the hostPath led to when the container asked for it, even if another container makes the path
// lead elsewhere before it is used. If the path leads elsewhere now, the volume fails its verification, and no
// container gets it.
//
// Attacks: C51.
func TestAHostPathIsGivenByWhatItLedTo(t *testing.T) {
	c := dirs(t)
	dir, outside := t.TempDir(), t.TempDir()
	c.HostPaths = []string{dir}
	for path, content := range map[string]string{dir + "/team/data/f": "ours", dir + "/team/file": "a file", outside + "/f": "the host's"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nested := dir + "/team/data/nested"
	if err := os.Mkdir(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", nested, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir+"/team/moved/nested", unix.MNT_DETACH) })
	n, _ := start(t, c)
	apply(t, n, strings.ReplaceAll(hostPathPod, "DIR", dir))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	at := must(t, n, "app")
	own := filepath.Join(n.layout.Pods(), string(uid), "volume-subpaths")
	for mount, path := range map[string]string{
		"/below": dir + "/team/data", "/file": dir + "/team/file", "/missing": dir + "/team/missing", "/below/": nested,
		"/shared": dir + "/team/data", "/shared/": nested, "/both": dir + "/team/data",
	} {
		given := at[strings.TrimSuffix(mount, "/")].HostPath
		if !strings.HasPrefix(given, own+"/") {
			t.Errorf("%s is given as %s", mount, given)
		}
		if path == nested {
			given += "/nested"
		}
		same(t, given, path)
	}
	if at["/whole"].HostPath != dir {
		t.Errorf("an allowed directory: %+v", at["/whole"])
	}
	for _, mount := range []string{"/below", "/shared", "/both"} {
		before := mountsBelow(t, at[mount].HostPath)
		if again := must(t, n, "app"); !reflect.DeepEqual(again[mount], at[mount]) || !slices.Equal(mountsBelow(t, at[mount].HostPath), before) {
			t.Errorf("asked again: %+v, and the mounts are %q, not %q", again[mount], mountsBelow(t, at[mount].HostPath), before)
		}
	}
	if err := n.Manager().Verify(within(t), uid); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir+"/team/data", dir+"/team/moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/team/data"); err != nil {
		t.Fatal(err)
	}
	for _, mount := range []string{"/below", "/shared", "/both"} {
		if got, err := os.ReadFile(at[mount].HostPath + "/f"); err != nil || string(got) != "ours" {
			t.Errorf("%s: the file now has %q, %v", mount, got, err)
		}
	}
	if err := n.Manager().Verify(within(t), uid); err == nil || !strings.Contains(err.Error(), "a symbolic link in it leads to "+outside) {
		t.Errorf("verified: %v", err)
	}
	if m, err := n.ContainerMounts(within(t), server.Container{Namespace: "default", Pod: "web", Name: "app"}); err == nil {
		t.Errorf("a container is given %+v", m)
	}
	if err := n.DeletePod(t.Context(), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir + "/team/moved/f": "ours", dir + "/team/file": "a file"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("after the pod has gone %s is %q, %v", path, got, err)
		}
	}
	var there, host unix.Stat_t
	if err := unix.Stat(dir+"/team/moved/nested", &there); err != nil || unix.Stat(dir, &host) != nil || there.Dev == host.Dev {
		t.Errorf("what was mounted below the path is not any more: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(n.layout.Pods(), string(uid))); !os.IsNotExist(err) {
		t.Errorf("the pod's directory: %v", err)
	}
}

// mountsBelow returns the ids and points of the mounts at and below path.
func mountsBelow(t *testing.T, path string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[4] == path || strings.HasPrefix(f[4], path+"/") {
			found = append(found, f[0]+" "+strings.TrimPrefix(f[4], path))
		}
	}
	return found
}

const propagatedPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: i
    securityContext: {privileged: true}
    volumeMounts:
    - {name: host, mountPath: /none}
    - {name: host, mountPath: /slave, mountPropagation: HostToContainer}
    - {name: host, mountPath: /both, mountPropagation: Bidirectional}
  volumes:
  - {name: host, hostPath: {path: DIR/srv, type: Directory}}
`

// A person on the host unmounts below a hostPath what was mounted there before and after the container asked: no copy
// keeps it in use, and its directory can be removed. What a container mounts reaches the host from a Bidirectional mount
// only. A mount that an earlier version made, private to its source, is replaced when the container starts again.
func TestTheHostsMountsBelowAHostPathAreTheHosts(t *testing.T) {
	c, dir := dirs(t), t.TempDir()
	c.HostPaths = []string{dir}
	shared(t, dir)
	if err := os.MkdirAll(c.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	shared(t, c.Root)
	disk := func(name string) string { return dir + "/srv/" + name }
	for _, name := range []string{"before", "after", "of-a-container"} {
		if err := os.MkdirAll(disk(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountTmpfs(t, disk("before"))
	n, _ := start(t, c)
	apply(t, n, strings.ReplaceAll(propagatedPod, "DIR", dir))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	at := must(t, n, "app")
	earlier := at["/none"].HostPath // as an earlier version bound it
	if err := unix.Unmount(earlier, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir+"/srv", earlier, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", earlier, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	must(t, n, "app")
	mountTmpfs(t, disk("after"))
	for _, mount := range []string{"/none", "/slave", "/both"} {
		for _, name := range []string{"before", "after"} {
			same(t, at[mount].HostPath+"/"+name, disk(name))
		}
	}
	for _, name := range []string{"before", "after"} {
		if err := unix.Unmount(disk(name), 0); err != nil {
			t.Errorf("umount %s: %v", name, err)
		}
		if err := os.Remove(disk(name)); err != nil {
			t.Errorf("a copy stays: %v", err)
		}
	}
	for mount, reaches := range map[string]bool{"/none": false, "/slave": false, "/both": true} {
		below := at[mount].HostPath + "/of-a-container"
		mountTmpfs(t, below)
		if got := len(mountsBelow(t, disk("of-a-container"))) > 0; got != reaches {
			t.Errorf("%s: what the container mounts is on the host: %v, want %v", mount, got, reaches)
		}
		if err := unix.Unmount(below, 0); err != nil {
			t.Error(err)
		}
	}
	if err := n.DeletePod(t.Context(), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if left := mountsBelow(t, n.layout.Pods()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func mountTmpfs(t *testing.T, at string) {
	t.Helper()
	if err := unix.Mount("x", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// shared makes dir a shared mount, as the root of a host with systemd is.
func shared(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
}

const wholePod = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: value}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: slave, mountPath: /slave, mountPropagation: HostToContainer}
    - {name: settings, mountPath: /settings}
    - {name: reader, mountPath: /reader, readOnly: true}
    - {name: host, mountPath: /host, mountPropagation: HostToContainer}
    - {name: listed, mountPath: /listed}
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: slave, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
  - {name: reader, emptyDir: {}}
  - {name: host, hostPath: {path: DIR/srv, type: DirectoryOrCreate}}
  - {name: listed, hostPath: {path: DIR}}
`

// A program that asks for the mounts of a pod gets the answer of one that asks for its container's. Of a hostPath, which
// only a mount for the container keeps from being replaced, the answer says so, and nothing is mounted for it.
func TestAPodsMountsAreThoseOfItsContainer(t *testing.T) {
	c, dir := dirs(t), t.TempDir()
	c.HostPaths = []string{dir}
	n, _ := start(t, c)
	apply(t, n, strings.ReplaceAll(wholePod, "DIR", dir))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	var pod []server.Mount
	for name, v := range n.Manager().GetMountedVolumesForPod(uid) {
		pod = append(pod, server.Mount{
			Namespace: "default", Pod: "web", UID: uid, Name: name, HostPath: v.HostPath, Driver: v.Driver, ReadOnly: v.ReadOnly,
		})
	}
	before := mountsBelow(t, n.layout.Root)
	whole := n.Whole(pod)
	if after := mountsBelow(t, n.layout.Root); !slices.Equal(after, before) {
		t.Errorf("the question mounted something: %q", after)
	}
	at := must(t, n, "app")
	for _, m := range whole {
		is := at["/"+m.Name]
		if m.ReadOnly != is.ReadOnly || m.Propagation != is.Propagation {
			t.Errorf("%s: %+v, but for the container %+v", m.Name, m, is)
		}
		if replaceable := m.Note != ""; replaceable != (m.HostPath != is.HostPath) || replaceable != (m.Name == "host") {
			t.Errorf("%s: note %q, %s and %s", m.Name, m.Note, m.HostPath, is.HostPath)
		}
	}
	if len(whole) != len(at) {
		t.Errorf("%d mounts, want %d", len(whole), len(at))
	}
	pod[0].UID = "another" // a pod that is being cleaned up after one of the same name was applied
	if got := n.Whole(pod[:1]); got[0].Propagation == "rslave" {
		t.Errorf("%+v", got)
	}
}
