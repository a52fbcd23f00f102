//go:build cluster

package cluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	nodeapi "github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// busybox is Debian's busybox-static, all that a container needs.
const busybox = "/bin/busybox"

// container is a container that runc made, as a container runtime does, with the mounts
// that csi-volmgr returns for it.
type container struct {
	t          *testing.T
	id, bundle string
}

// runc runs a command of runc.
func (c *container) runc(args ...string) string {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), "runc", append([]string{"--root", filepath.Join(c.bundle, "runc")}, args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("runc %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// exec runs a shell command in the container.
func (c *container) exec(script string) string {
	c.t.Helper()
	return c.runc("exec", c.id, "/busybox", "sh", "-c", script)
}

// runs starts a pod's container, which sleeps until the test ends.
func (n *node) runs(pod, name string) *container {
	n.t.Helper()
	c := &container{t: n.t, id: "cluster-" + pod + "-" + name, bundle: filepath.Join(n.dir, "bundle-"+name)}
	rootfs := filepath.Join(c.bundle, "rootfs")
	must(n.t, os.MkdirAll(filepath.Join(rootfs, "proc"), 0o755))
	must(n.t, exec.Command("cp", busybox, filepath.Join(rootfs, "busybox")).Run())
	type mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	mounts := []mount{{Destination: "/proc", Type: "proc", Source: "proc"}}
	given, err := n.api.ContainerMounts(n.t.Context(), nodeapi.Container{Namespace: "default", Pod: pod, Name: name})
	must(n.t, err)
	for _, m := range given {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, mount{m.ContainerPath, "bind", m.HostPath, []string{"rbind", access, m.Propagation}})
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process":    map[string]any{"user": map[string]any{"uid": 0, "gid": 0}, "cwd": "/", "args": []string{"/busybox", "sleep", "1000000"}, "env": []string{"PATH=/"}},
		"root":       map[string]any{"path": "rootfs"},
		"mounts":     mounts,
		"linux":      map[string]any{"namespaces": []map[string]string{{"type": "mount"}, {"type": "pid"}}},
	})
	must(n.t, err)
	must(n.t, os.WriteFile(filepath.Join(c.bundle, "config.json"), config, 0o600))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(n.t, err)
	defer null.Close()
	log, err := os.Create(filepath.Join(c.bundle, "log"))
	must(n.t, err)
	defer log.Close()
	run := exec.Command("runc", "--root", filepath.Join(c.bundle, "runc"), "run", "--detach", "--bundle", c.bundle, c.id)
	run.Stdin, run.Stdout, run.Stderr = null, log, log // no pipe, since the container would keep it open
	if err := run.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		n.t.Fatalf("runc run: %v\n%s", err, text)
	}
	n.t.Cleanup(c.end)
	return c
}

// end ends the container, if it still exists.
func (c *container) end() {
	_ = exec.Command("runc", "--root", filepath.Join(c.bundle, "runc"), "delete", "--force", c.id).Run()
}

// runc starts two containers with the mounts that csi-volmgr returns for them. They use the
// volume of a bound pod: the container with HostToContainer sees later mounts in the
// volume, the one without does not, and the read-only one cannot write. Nothing is left
// once they have ended.
func TestContainersOfRuncHaveThePodsVolume(t *testing.T) {
	t.Parallel()
	yes := true
	a := newArray(t, "runc.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("running")
	n := asNode(t, "runc")
	a.serve(n)
	p := podWith(n.name, "runs", fromClaim("running"))
	slave := corev1.MountPropagationHostToContainer
	p.Spec.Containers = []corev1.Container{
		{Name: "sees", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data", MountPropagation: &slave}}},
		{Name: "reads", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}},
	}
	createPod(t, p)
	at := n.at("runs", "data")
	must(t, os.WriteFile(filepath.Join(at, "in"), []byte("from the host"), 0o644))
	must(t, os.Mkdir(filepath.Join(at, "later"), 0o755))
	sees, reads := n.runs("runs", "sees"), n.runs("runs", "reads")
	if got := sees.exec("cat /data/in; echo from inside > /data/out"); got != "from the host" {
		t.Errorf("read %q", got)
	}
	if got := reads.exec("cat /data/out; touch /data/no 2>/dev/null || echo refused"); got != "from inside\nrefused" {
		t.Errorf("read %q", got)
	}
	must(t, unix.Mount("none", filepath.Join(at, "later"), "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(at, "later", "file"), nil, 0o644))
	if got := sees.exec("ls /data/later"); got != "file" {
		t.Errorf("HostToContainer: what is mounted later shows as %q", got)
	}
	if got := reads.exec("ls /data/later"); got != "" {
		t.Errorf("without propagation: what is mounted later shows as %q", got)
	}
	must(t, unix.Unmount(filepath.Join(at, "later"), 0))
	sees.end()
	reads.end()
	n.gone("runs")
	if got, err := os.ReadFile(filepath.Join(a.dir, "running", "out")); err != nil || string(got) != "from inside\n" {
		t.Errorf("on the storage: %q, %v", got, err)
	}
}
