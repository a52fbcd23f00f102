package wire

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const pathsPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: web
    volumeMounts: [{name: host, mountPath: /h}, {name: bound, mountPath: /b}, {name: disk, mountPath: /d}]
  volumes:
  - name: host
    hostPath: {path: DIR/made/here, type: DirectoryOrCreate}
  - name: bound
    persistentVolumeClaim: {claimName: host, readOnly: true}
  - name: disk
    persistentVolumeClaim: {claimName: disk}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: host}
spec: {volumeName: host, storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: host}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: DIR}, claimRef: {namespace: default, name: host}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {volumeName: disk, storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  local: {path: DIR/disk}
  claimRef: {namespace: default, name: disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
`

// M06, M08, M16: from the manifest to the paths that pods get, and back.
//
// Items: M16.
func TestPathsOfTheNodeAreHandedOut(t *testing.T) {
	c := dirs(t)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/disk", 0o755); err != nil {
		t.Fatal(err)
	}
	c.HostPaths = []string{dir}
	n, stop := start(t, c)
	apply(t, n, strings.ReplaceAll(pathsPod, "DIR", dir))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	check := func(n *Node) {
		t.Helper()
		got := n.Manager().GetMountedVolumesForPod(uid)
		if got["host"].HostPath != dir+"/made/here" || got["bound"].HostPath != dir || !got["bound"].ReadOnly || got["host"].ReadOnly {
			t.Errorf("hostPath: got %+v", got)
		}
		if want := n.layout.BuiltinTarget("kubernetes.io/local-volume", uid, "disk"); got["disk"].HostPath != want || got["disk"].SpecName != "disk" {
			t.Errorf("local: got %+v, want %s", got["disk"], want)
		}
	}
	check(n)
	disk := n.Manager().GetMountedVolumesForPod(uid)["disk"].HostPath
	if err := os.WriteFile(filepath.Join(disk, "f"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop()
	n, _ = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	check(n)
	if err := n.DeletePod(t.Context(), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(dir + "/disk/f"); err != nil || string(data) != "data" {
		t.Errorf("after the pod has gone: got %q, %v", data, err)
	}
	if _, err := os.Stat(dir + "/made/here"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(n.layout.Pods(), string(uid))); !os.IsNotExist(err) {
		t.Errorf("the pod's directory: %v", err)
	}
}

// C23: without the operator's permission pods get no path, and their volumes say why.
func TestPathsAreDeniedByDefault(t *testing.T) {
	c := dirs(t)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/disk", 0o755); err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, c)
	apply(t, n, strings.ReplaceAll(pathsPod, "DIR", dir))
	uid := uidOf(t, n, "web")
	ctx := within(t)
	for {
		changed := n.Manager().Changed()
		told := 0
		p, _ := n.Manager().Pod(uid)
		for _, v := range p.Volumes {
			if v.Mounted || v.HostPath != "" && v.Phase == state.Present {
				t.Fatalf("got %+v", v)
			}
			if strings.Contains(v.Retry.Error, "--host-path-allow") {
				told++
			}
		}
		if told == 3 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("got %+v", p.Volumes)
		}
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 1 {
		t.Errorf("got %v, %v", found, err)
	}
}
