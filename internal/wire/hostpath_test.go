package wire

import (
	"os"
	"path/filepath"
	"reflect"
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
	for mount, path := range map[string]string{"/below": dir + "/team/data", "/file": dir + "/team/file", "/missing": dir + "/team/missing", "/below/": nested} {
		given := at[strings.TrimSuffix(mount, "/")].HostPath
		if !strings.HasPrefix(given, own+"/") {
			t.Errorf("%s is given as %s", mount, given)
		}
		if path == nested {
			given += "/nested"
		}
		same(t, given, path)
	}
	if at["/whole"].HostPath != dir || at["/shared"].HostPath != dir+"/team/data" {
		t.Errorf("an allowed directory, and one with propagation: %+v, %+v", at["/whole"], at["/shared"])
	}
	if again := must(t, n, "app"); !reflect.DeepEqual(again["/below"], at["/below"]) {
		t.Errorf("asked again: %+v", again["/below"])
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
	if got, err := os.ReadFile(at["/below"].HostPath + "/f"); err != nil || string(got) != "ours" {
		t.Errorf("the file now has %q, %v", got, err)
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
