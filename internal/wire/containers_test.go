package wire

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const containerManifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: value}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - {name: prepare, image: i, volumeMounts: [{name: scratch, mountPath: /s}]}
  containers:
  - name: app
    image: i
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: scratch, mountPath: /data, subPathExpr: data/$(POD)}
    - {name: settings, mountPath: /etc/key, subPath: key}
    - {name: settings, mountPath: /etc/all}
    - {name: scratch, mountPath: /ro, subPath: made, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: scratch, mountPath: /calm, subPath: made, bindMountOptions: [nosuid, noexec]}
  - {name: greedy, image: i, volumeMounts: [{name: settings, mountPath: /x, subPath: missing}]}
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
`

func app(container string) server.Container {
	return server.Container{Namespace: "default", Pod: "web", Name: container, MountOptions: true}
}

// must returns the mounts of a container by their path in the container.
func must(t *testing.T, n *Node, container string) map[string]server.ContainerMount {
	t.Helper()
	mounts, err := n.ContainerMounts(within(t), app(container))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]server.ContainerMount{}
	for _, m := range mounts {
		at[m.ContainerPath] = m
	}
	return at
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	if err := errors.Join(errA, errB); err != nil || !os.SameFile(x, y) {
		t.Errorf("%s is not %s: %v", a, b, err)
	}
}

// TestContainersAreGivenPartsOfVolumes: from the init container that makes a directory, over a restart of the daemon,
// to the end of the pod. Then the node removes all mounts for its containers, before the volumes.
// Items: N01, N04, N05, N07, L17, Q03.
// Scenarios: U-151, U-153.
func TestContainersAreGivenPartsOfVolumes(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	apply(t, n, containerManifest)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	scratch := must(t, n, "prepare")["/s"].HostPath
	if err := os.MkdirAll(filepath.Join(scratch, "data/web"), 0o755); err != nil { // as an init container does
		t.Fatal(err)
	}
	settings := n.Manager().GetMountedVolumesForPod(uid)["settings"].HostPath
	first := must(t, n, "app")
	same(t, first["/data"].HostPath, filepath.Join(scratch, "data/web"))
	same(t, first["/ro"].HostPath, filepath.Join(scratch, "made"))
	same(t, first["/etc/key"].HostPath, filepath.Join(settings, "key"))
	if m := first["/etc/all"]; m.HostPath != settings || !m.ReadOnly || !m.SELinuxRelabel {
		t.Errorf("the whole configMap: %+v", m)
	}
	if m := first["/ro"]; !m.ReadOnly || m.RecursiveReadOnly || m.Note == "" {
		t.Errorf("read-only recursively if possible: %+v", m)
	}
	calm := first["/calm"]
	if !slices.Equal(calm.MountOptions, []string{"noexec", "nosuid"}) {
		t.Errorf("what the runtime is to be given: %+v", calm)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(calm.HostPath, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_NOSUID == 0 {
		t.Errorf("%s: flags %#x, %v, want noexec and nosuid", calm.HostPath, st.Flags, err)
	}
	cannot := app("app")
	cannot.MountOptions = false
	if _, err := n.ContainerMounts(within(t), cannot); !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), "bindMountOptions[0]") {
		t.Errorf("a runtime that does not know mount options: %v", err)
	}
	if _, err := n.ContainerMounts(within(t), app("greedy")); !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a key that the configMap has not: %v", err)
	}
	stop()
	n, _ = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	same(t, must(t, n, "app")["/data"].HostPath, filepath.Join(scratch, "data/web"))
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	mounts, err := mount.New(c.Root).List(t.Context(), c.Root)
	if err != nil || len(mounts) != 0 {
		t.Errorf("mounted still: %v, %v", mounts, err)
	}
	if _, err := os.Lstat(filepath.Join(c.Root, "pods", string(uid))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pod's directory: %v", err)
	}
	if _, err := n.ContainerMounts(within(t), app("app")); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("the pod that has gone: %v", err)
	}
}

// Items: N05.
func TestSubpathInUseKeepsItsVolume(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, containerManifest)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(must(t, n, "app")["/data"].HostPath)
	if err != nil {
		t.Fatal(err)
	}
	scratch := n.Manager().GetMountedVolumesForPod(uid)["scratch"].HostPath
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func() bool {
		p, _ := n.Manager().Pod(uid)
		for _, v := range p.Volumes {
			if v.Retry.Attempts > 0 && strings.Contains(v.Retry.Error, "subpaths of volume scratch") {
				return true
			}
		}
		return false
	})
	if _, err := os.Stat(filepath.Join(scratch, "data/web")); err != nil {
		t.Errorf("the volume under a subpath in use: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, n *Node, is func() bool) {
	t.Helper()
	ctx := within(t)
	for {
		changed := n.Manager().Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("it never came")
		}
	}
}

// TestSubpathsWithoutARecordAreRemovedAtTheStart: the daemon crashed after it removed a volume's last record and
// before it removed the volume's bind mounts.
// Items: N05.
func TestSubpathsWithoutARecordAreRemovedAtTheStart(t *testing.T) {
	c := dirs(t)
	data := t.TempDir()
	l, k := state.Layout{Root: c.Root}, mount.New(c.Root)
	if err := os.MkdirAll(l.Pods(), 0o750); err != nil {
		t.Fatal(err)
	}
	helpers := isolate.New(isolate.Config{Service: subpath.Helper()})
	at, err := subpath.New(l, k, helpers).Bind(t.Context(), subpath.Request{
		Pod: "gone", Volume: "v", Container: "c", Path: "d", Root: subpath.Root{Path: data},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.manager.Run(ctx) }()
	if err := n.sweeps[len(n.sweeps)-1](within(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(at); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want that it is gone", at, err)
	}
	cancel()
	if err := errors.Join(<-ended, n.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(data, "d")); err != nil {
		t.Errorf("the data: %v", err)
	}
}

// A container with a user namespace gets volumes, whole or in part, if the kernel can map their IDs, and is told to
// map them. The node refuses a volume that the kernel cannot map, by name.
//
// Items: Q09.
func TestContainersOfAUserNamespace(t *testing.T) {
	c := dirs(t)
	c.HostPaths = []string{"/proc"}
	n, _ := start(t, c)
	apply(t, n, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostUsers: false
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: scratch, mountPath: /whole}
    - {name: scratch, mountPath: /part, subPath: part}
  - {name: looks, image: i, volumeMounts: [{name: kernel, mountPath: /k}]}
  volumes:
  - {name: scratch, emptyDir: {medium: Memory}}
  - {name: kernel, hostPath: {path: /proc/sys}}
`)
	if err := n.Manager().WaitForAttachAndMount(within(t), uidOf(t, n, "web")); err != nil {
		t.Fatal(err)
	}
	of := func(container string) server.Container {
		a := app(container)
		a.UserNamespaces = true
		return a
	}
	mounts, err := n.ContainerMounts(within(t), of("app"))
	if err != nil || len(mounts) != 2 {
		t.Fatalf("%+v, %v", mounts, err)
	}
	for _, m := range mounts {
		if can, err := mount.New(c.Root).MapsIDs(t.Context(), m.HostPath); !m.MapIDs || err != nil || !can.IDs {
			t.Errorf("%+v: %+v, %v", m, can, err)
		}
	}
	_, err = n.ContainerMounts(within(t), of("looks"))
	const want = "volume kernel of driver kubernetes.io/host-path: spec.hostUsers: found false, want true or none, " +
		"since this node's kernel cannot map the ids of its file system (proc)"
	if !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if mounted, err := mount.New(c.Root).List(t.Context(), filepath.Join(c.Root, "pods")); err != nil || len(mounted) != 2 {
		t.Errorf("mounted: %v, %v; want the volume and its part", mounted, err)
	}
}
