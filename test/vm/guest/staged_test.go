//go:build vm

package guest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// sharedNode is a daemon and a driver whose volumes are directories of an NFS server.
type sharedNode struct {
	*harness.Node
	state string // of the driver
}

// newSharedNode starts both. The driver's own mounts are below the root, as a driver's in
// a container are.
func newSharedNode(t *testing.T) sharedNode {
	t.Helper()
	n := sharedNode{Node: harness.NewNode(t, "/usr/bin/csi-volmgr", "run/api.sock")}
	n.state = mkdir(t, filepath.Join(n.Root, "plugins", strictName, "state"))
	registry := mkdir(t, filepath.Join(n.Root, "plugins_registry"))
	yes := true
	if err := csistrict.WriteScript(n.state, csistrict.Script{PodInfo: &yes}); err != nil {
		t.Fatal(err)
	}
	harness.Start(t, n.Path("driver.log"), exec.Command("/usr/local/bin/csi-strict", "--statedir", n.state, "--registration-dir", registry,
		"--endpoint", filepath.Join(n.Root, "plugins", strictName, "csi.sock")))
	daemon := n.Answered(func() *harness.Process {
		return harness.Start(t, n.Path("daemon.log"), exec.Command(n.Program, n.Daemon("--manifests", "")...))
	})
	t.Cleanup(func() { n.ShowIfFailed(daemon) })
	await(t, "the driver", func() bool { return strings.Contains(n.CLI("", "get", "drivers").Stdout, strictName) })
	head, _, _ := strings.Cut(webManifest, "---\napiVersion: v1\n")
	n.Apply(head)
	return n
}

// volume makes a claim whose volume is what mount mounts.
func (n sharedNode) volume(claim string, mount func(t *testing.T, at string)) {
	n.T.Helper()
	dirs := func() []string {
		all, err := filepath.Glob(filepath.Join(n.state, "volumes/*/data"))
		if err != nil {
			n.T.Fatal(err)
		}
		return all
	}
	before := dirs()
	n.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s},
  spec: {storageClassName: strict, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}`, claim))
	await(n.T, "claim "+claim, func() bool { return len(dirs()) > len(before) })
	made := slices.DeleteFunc(dirs(), func(dir string) bool { return slices.Contains(before, dir) })
	mount(n.T, made[0])
}

func (n sharedNode) up(pod string) {
	n.T.Helper()
	n.Apply(harness.Pod(pod, harness.FromClaim("data", pod)))
	await(n.T, "pod "+pod, func() bool { return n.CLI("", "wait", "pod", pod, "--timeout=10s").Code == 0 })
	write(n.T, filepath.Join(n.HostPath(pod, "data"), "file"), pod)
}

// volumes returns what get volumes says.
func (n sharedNode) volumes() string { return n.CLI("", "get", "volumes", "-o", "json").Stdout }

// down removes the pod and waits until its volume is not on the node any more.
func (n sharedNode) down(pod string, left int) {
	n.T.Helper()
	n.Remove(pod)
	n.left(left)
}

// left waits until that many volumes are on the node.
func (n sharedNode) left(want int) {
	n.T.Helper()
	await(n.T, fmt.Sprintf("%d volumes to be left", want), func() bool {
		all, err := n.API.Volumes(n.T.Context())
		return err == nil && len(all) == want
	})
}

// A driver stages volumes that are directories of an NFS server, and another directory of that server is mounted on
// the host: by a person, before or after, or for another volume, which may be a part of the first.
// Each volume is unstaged when its pod is gone, and the others stay as they are. A person's mount
// of the volume's own directory is waited for, and named.
//
// Items: C34.
func TestVolumesOfAServerGoBesideItsOtherMounts(t *testing.T) {
	serveDirectories(t)
	for version, mount := range map[string]func(t *testing.T, dir, at string){"nfs4": mountNFS4, "nfs3": mountNFS3} {
		t.Run(version, func(t *testing.T) {
			n := newSharedNode(t)
			for claim, dir := range map[string]string{"whole": "vol", "part": "vol/sub"} {
				n.volume(claim, func(t *testing.T, at string) { mount(t, dir, at) })
			}
			home, same := mkdir(t, n.Path("home")), mkdir(t, n.Path("same"))
			mount(t, "home", home)
			n.up("whole")
			n.up("part")
			n.down("whole", 1)
			if got := read(t, filepath.Join(n.HostPath("part", "data"), "file")); got != "part" {
				t.Errorf("the other volume has %q", got)
			}
			n.up("whole")
			n.down("part", 1)
			sh(t, "umount", home)
			mount(t, "home", home)
			n.down("whole", 0)
			if got := mountOf(t, home); got == "" {
				t.Error("/mnt/home is no longer mounted")
			}

			n.up("whole")
			mount(t, "vol", same)
			n.Remove("whole")
			await(t, "the person's mount to be named", func() bool {
				said := n.volumes()
				return strings.Contains(said, "unmount it there first: "+same) && !strings.Contains(said, home)
			})
			sh(t, "umount", same)
			n.left(0)
			sh(t, "umount", home)
			events, err := csistrict.ReadTranscript(n.state)
			if broken := csistrict.Breaches(events); err != nil || len(broken) > 0 {
				t.Errorf("the driver: %v, %+v", err, broken)
			}
		})
	}
}
