package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
)

const (
	// patience is how long anything may take on a machine that is busy. A test
	// that passes never waits for it.
	patience = 90 * time.Second
	nodeName = "node-1"
)

// node is a daemon with all its directories, and a driver beside it.
type node struct {
	t      *testing.T
	dir    string
	root   string
	api    *client.Client
	daemon *process
	driver *driver
	flags  []string // besides those that say where
}

// newNode starts a daemon, and a driver that it knows when newNode returns.
func newNode(t *testing.T, k kind) *node {
	t.Helper()
	n := newPlace(t)
	n.driver = newDriver(n, k)
	n.start()
	n.driverUp(k.name)
	return n
}

// newPlace makes the directories of a node on which nothing runs yet.
func newPlace(t *testing.T) *node {
	t.Helper()
	// Not t.TempDir, whose path is too long for a socket's.
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, root: filepath.Join(dir, "root")}
	n.api = client.New(n.socket())
	for _, d := range []string{n.root, n.manifests()} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(n.clean)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *node) socket() string          { return n.path("run/api.sock") }
func (n *node) manifests() string       { return n.path("manifests") }
func (n *node) registry() string        { return filepath.Join(n.root, "plugins_registry") }

// clean runs after all processes of the test were killed.
func (n *node) clean() {
	n.api.Close()
	if n.t.Failed() && n.daemon != nil {
		n.t.Logf("end of the daemon's log:\n%s", n.daemon.tail())
		if n.driver != nil {
			n.t.Logf("end of the driver's log:\n%s", n.driver.proc.tail())
		}
	}
	if n.driver != nil && n.driver.strict {
		n.judged()
	}
	for _, m := range mountsBelow(n.t, n.dir) {
		unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, loop := range loopsBelow(n.t, n.dir) {
		detachLoop(loop)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
}

// start starts the daemon and returns when it answers.
func (n *node) start() {
	n.t.Helper()
	run := filepath.Dir(n.socket())
	if err := os.MkdirAll(run, 0o755); err != nil {
		n.t.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		n.t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(run); err != nil {
		n.t.Fatal(err)
	}
	n.daemon = start(n.t, n.dir, daemon, append([]string{
		"run", "--root-dir", n.root, "--state-dir", n.path("state"),
		"--socket", n.socket(), "--http-address", "off", "--manifests", n.manifests(), "--node-name", nodeName,
		"--log-level", "debug",
	}, n.flags...)...)
	deadline := time.After(patience)
	for {
		if _, err := n.api.Version(n.t.Context()); err == nil {
			return
		}
		select {
		case <-w.Events:
		case <-n.daemon.done:
			n.t.Fatalf("the daemon ended: %v", n.daemon.err)
		case <-deadline:
			n.t.Fatal("the daemon does not answer")
		}
	}
}

// cli runs csi-volmgr against the daemon.
func (n *node) cli(stdin string, args ...string) result {
	n.t.Helper()
	return run(n.t, stdin, program, append([]string{"--socket", n.socket()}, args...)...)
}

// do runs csi-volmgr, which must succeed.
func (n *node) do(stdin string, args ...string) string {
	n.t.Helper()
	r := n.cli(stdin, args...)
	if r.code != 0 {
		n.t.Fatalf("csi-volmgr %q: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func (n *node) apply(docs ...string) {
	n.t.Helper()
	n.do(manifest(docs...), "apply", "-f", "-")
}

// mounted waits until the pod has its volumes.
func (n *node) mounted(pod string) {
	n.t.Helper()
	n.do("", "wait", "pod", pod, "--for=mounted", "--timeout", patience.String())
}

// asWanted waits until nothing is being done for the pod either, such as the
// renewal of a volume that it has and may use meanwhile.
func (n *node) asWanted(pod string) {
	n.t.Helper()
	until(n, "pod "+pod+" to be as wanted", n.api.WatchPods, func(all map[string]manager.PodStatus) bool {
		for _, p := range all {
			busy := slices.ContainsFunc(p.Volumes, func(v manager.PodVolumeStatus) bool { return v.Step != "" })
			if p.Pod.Name == pod && p.Ready && !busy {
				return true
			}
		}
		return false
	})
}

// deletePod takes pods back and waits until nothing of them is here.
func (n *node) deletePod(pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		n.do("", "delete", "pod", pod)
	}
	for _, pod := range pods {
		n.do("", "wait", "pod", pod, "--for=unmounted", "--timeout", patience.String())
	}
}

// deleteClaim deletes claims with their data, once no volume is in use.
func (n *node) deleteClaim(claims ...string) {
	n.t.Helper()
	n.noVolumes()
	n.do("", append([]string{"delete", "pvc"}, claims...)...)
	until(n, "the claims to be deleted", n.api.WatchPersistentVolumes, func(pvs map[string]server.PVStatus) bool {
		for _, pv := range pvs {
			if slices.ContainsFunc(claims, func(c string) bool { return pv.Claim == "default/"+c }) {
				return false
			}
		}
		return true
	})
	until(n, "the claims to be gone", n.api.WatchClaims, func(have map[string]server.ClaimStatus) bool {
		for _, c := range have {
			if slices.Contains(claims, c.Name) {
				return false
			}
		}
		return true
	})
}

// noVolumes waits until there is no volume on the node.
func (n *node) noVolumes() {
	n.t.Helper()
	until(n, "no volume to be left", n.api.WatchVolumes, func(all map[string]manager.VolumeStatus) bool { return len(all) == 0 })
}

// driverUp waits until the daemon knows the driver.
func (n *node) driverUp(name string) {
	n.t.Helper()
	until(n, "driver "+name+" to be up", n.api.WatchDrivers, func(all map[string]manager.DriverStatus) bool {
		return all[name].Up
	})
}

// blocked waits until one of the pod's volumes says what it is blocked by, and
// returns that.
func (n *node) blocked(pod string, words ...string) (reason string) {
	n.t.Helper()
	until(n, "pod "+pod+" to say what blocks it", n.api.WatchPods, func(all map[string]manager.PodStatus) bool {
		for _, p := range all {
			for _, v := range p.Volumes {
				if p.Pod.Name == pod && !v.Mounted && (v.BlockedBy != "" || v.Retry.Error != "") {
					reason = v.BlockedBy + " " + v.Retry.Error
					return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(reason, w) })
				}
			}
		}
		return false
	})
	return reason
}

// hostPath returns where the pod's volume is on the host.
func (n *node) hostPath(pod, volume string) string {
	n.t.Helper()
	return n.mount(pod, volume).HostPath
}

func (n *node) mount(pod, volume string) server.Mount {
	n.t.Helper()
	mounts, err := n.api.Mounts(n.t.Context(), "default", pod)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, m := range mounts {
		if m.Name == volume {
			return m
		}
	}
	n.t.Fatalf("pod %s has no mounted volume %s, but %v", pod, volume, mounts)
	return server.Mount{}
}

// watcher is a Watch method of the API's client.
type watcher[T any] func(ctx context.Context, each func(server.Event[T]) error) error

// until waits until ok is true of all things that watch tells of, by name.
func until[T any](n *node, what string, watch watcher[T], ok func(map[string]T) bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeoutCause(n.t.Context(), patience, fmt.Errorf("%s passed", patience))
	defer cancel()
	all, listed, done := map[string]T{}, false, false
	err := watch(ctx, func(e server.Event[T]) error {
		switch e.Type {
		case "set":
			all[nameOf(e.Item)] = e.Item
		case "gone":
			delete(all, nameOf(e.Item))
		case "listed":
			listed = true
		}
		if listed && !done && ok(all) {
			done = true
			cancel()
		}
		return nil
	})
	if !done {
		n.t.Fatalf("wait for %s: %v, %v; there is %+v", what, context.Cause(ctx), err, all)
	}
}

// nameOf is what tells one thing of a list from the others.
func nameOf(item any) string {
	switch i := item.(type) {
	case manager.PodStatus:
		return string(i.Pod.UID)
	case manager.VolumeStatus:
		return string(i.Volume.ID)
	case manager.DriverStatus:
		return string(i.Name)
	case server.ClaimStatus:
		return i.Namespace + "/" + i.Name
	case server.PVStatus:
		return i.Name
	}
	panic(fmt.Sprintf("nameOf(%T)", item))
}
