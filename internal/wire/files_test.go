package wire

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const filesPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: one}, annotations: {turn: one}}
spec:
  containers:
  - name: web
    image: web
    volumeMounts: [{name: cert, mountPath: /c}, {name: self, mountPath: /s}, {name: all, mountPath: /a}, {name: none, mountPath: /n}, {name: conf, mountPath: /m}]
  volumes:
  - name: cert
    secret: {secretName: cert, defaultMode: 0400}
  - name: self
    downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: turn, fieldRef: {fieldPath: "metadata.annotations['turn']"}}, {path: cpu, resourceFieldRef: {containerName: web, resource: limits.cpu}}]}
  - name: all
    projected: {sources: [{secret: {name: cert}}, {configMap: {name: conf}}]}
  - name: none
    secret: {secretName: later, optional: true}
  - name: conf
    configMap: {name: missing, optional: true}
`

const filesObjects = `
---
apiVersion: v1
kind: Secret
metadata: {name: cert}
stringData: {key: canary-51aa}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {greeting: hello}
`

// L03, L05, L08, L09: applied content appears in the pod's files soon afterwards.
//
// Items: L03, L08, N-35.
func TestFilesFollowTheirObjects(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	apply(t, n, filesPod+filesObjects)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	mounts := n.Manager().GetMountedVolumesForPod(uid)
	reads(t, n, mounts, map[string]string{"cert/key": "canary-51aa", "self/labels": `app="one"`, "self/turn": "one", "all/key": "canary-51aa", "all/greeting": "hello"})
	for _, name := range []string{"cert", "self", "all", "none"} {
		var st unix.Statfs_t
		if err := unix.Statfs(mounts[name].HostPath, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			t.Errorf("%s: got a file system of type %#x, %v, want a tmpfs", name, st.Type, err)
		}
	}
	first := revisions(n, uid)
	apply(t, n, strings.ReplaceAll(filesPod, ": one", ": two")+strings.NewReplacer("51aa", "62bb", "hello", "bye").Replace(filesObjects)+
		"\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: later}\nstringData: {k: v}\n")
	want := map[string]string{"cert/key": "canary-62bb", "self/labels": `app="two"`, "self/turn": "two", "all/key": "canary-62bb", "all/greeting": "bye", "none/k": "v"}
	reads(t, n, mounts, want)
	// The files change before the call that wrote them has ended and its record says so.
	for changed := n.Manager().Changed(); slices.ContainsFunc(slices.Collect(maps.Keys(first)), func(id state.VolumeID) bool {
		return !strings.HasSuffix(string(id), "/conf") && first[id] == revisions(n, uid)[id]
	}); changed = n.Manager().Changed() {
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatalf("revisions stay as they were: %v", first)
		}
	}

	stop()
	nowhere(t, c.StateDir, "secrets", "canary-62bb")
	before := revisions(n, uid)
	n, _ = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if after := revisions(n, uid); len(before) != 5 || !maps.Equal(before, after) {
		t.Errorf("revisions: got %v, want %v as before the restart", after, before)
	}
	reads(t, n, mounts, want)
	if err := n.DeletePod(t.Context(), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mounts["cert"].HostPath); !os.IsNotExist(err) {
		t.Errorf("after the pod has gone: %v", err)
	}
}

// revisions returns the published revisions of the pod's volumes.
func revisions(n *Node, uid state.PodUID) map[state.VolumeID]string {
	found := map[state.VolumeID]string{}
	for _, v := range n.Manager().Volumes() {
		if m, ok := v.Volume.Mounts[uid]; ok {
			found[v.Volume.ID] = m.Revision
		}
	}
	return found
}

// reads waits until each file, "volume/path", has its content.
func reads(t *testing.T, n *Node, mounts map[string]manager.MountedVolume, want map[string]string) {
	t.Helper()
	ctx := within(t)
	for {
		changed := n.Manager().Changed()
		wrong := ""
		for file, content := range want {
			volume, path, _ := strings.Cut(file, "/")
			data, err := os.ReadFile(filepath.Join(mounts[volume].HostPath, path))
			if err != nil || string(data) != content {
				wrong = file + ": got " + string(data) + ", want " + content
			}
		}
		if wrong == "" {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal(wrong)
		}
	}
}

// nowhere fails the test if a file below dir contains the text, except in the directory except.
func nowhere(t *testing.T, dir, except, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == except {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			t.Errorf("%s: has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
