//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

// boxImage is the image of all sandboxes and containers of the agents: busybox.
const boxImage = "localhost/box:1"

// containerdConfig works on a machine without a network plugin and without systemd, and
// where even root may not lower an OOM score, such as a container that runs tests.
const containerdConfig = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = "%[1]s/containerd.sock"
[ttrpc]
address = "%[1]s/ttrpc.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + boxImage + `"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[1]s/cni/bin"
conf_dir = "%[1]s/cni/conf"
`

// containerd is a container runtime with its own directories. It runs in its own PID
// namespace, so that no container outlives the tests, and sees later mounts in shared
// directories. It has one image, and asks no registry.
type containerd struct {
	t    *testing.T
	dir  string
	proc *server
}

// startContainerd starts a containerd that ends with the test. The test must end its pods
// before.
func startContainerd(t *testing.T, name string) *containerd {
	t.Helper()
	c := &containerd{t: t, dir: control.path("ctd-" + name)}
	must(t, os.Mkdir(c.dir, 0o755))
	must(t, os.WriteFile(filepath.Join(c.dir, "config.toml"), fmt.Appendf(nil, containerdConfig, c.dir), 0o600))
	c.start()
	t.Cleanup(c.end)
	if out, err := c.ctr("images", "import", c.image()); err != nil {
		t.Fatalf("import the image: %v\n%s", err, out)
	}
	return c
}

// start starts containerd, and returns when it answers.
func (c *containerd) start() {
	c.t.Helper()
	var err error
	c.proc, err = control.launch(filepath.Join(c.dir, "log"), nil, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "unchanged",
		"containerd", "--config", filepath.Join(c.dir, "config.toml"))
	must(c.t, err)
	must(c.t, control.within(c.t.Context(), "containerd answers", func() bool {
		_, err := c.ctr("version")
		return err == nil
	}))
}

// restart kills containerd and all its containers, and starts it again.
func (c *containerd) restart() {
	c.t.Helper()
	_ = c.proc.cmd.Process.Kill()
	<-c.proc.done
	c.start()
}

func (c *containerd) endpoint() string { return "unix://" + filepath.Join(c.dir, "containerd.sock") }

// ctr runs a command of containerd's client.
func (c *containerd) ctr(args ...string) (string, error) {
	all := append([]string{"--address", filepath.Join(c.dir, "containerd.sock"), "--namespace", "k8s.io"}, args...)
	out, err := exec.Command("ctr", all...).CombinedOutput()
	return string(out), err
}

// image makes the image, and returns its archive.
func (c *containerd) image() string {
	c.t.Helper()
	program, err := os.ReadFile(busybox)
	must(c.t, err)
	file := imagetest.File("bin/busybox", string(program))
	file.Mode = 0o755
	entries := []imagetest.Entry{imagetest.Dir("bin"), file}
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		entries = append(entries, imagetest.Dir(dir))
	}
	for _, name := range []string{"sh", "sleep", "cat", "df", "kill", "touch", "ls", "sync"} {
		entries = append(entries, imagetest.Symlink("bin/"+name, "busybox"))
	}
	l := imagetest.New(c.t, filepath.Join(c.dir, "layout"))
	layer := imagetest.Layer(c.t, entries...)
	config := l.JSON(imagetest.Config, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "rootfs": map[string]any{"type": "layers", "diff_ids": []oci.Digest{imagetest.DigestOf(layer)}},
		"config": map[string]any{"Entrypoint": []string{"/bin/sleep", "1000000"}, "Env": []string{"PATH=/bin"}},
	})
	l.Add(boxImage, l.JSON(imagetest.Manifest, map[string]any{
		"schemaVersion": 2, "mediaType": imagetest.Manifest, "config": config, "layers": []oci.Descriptor{l.Blob(imagetest.TAR, layer)},
	}))
	archive := filepath.Join(c.dir, "image.tar")
	l.Archive(archive)
	return archive
}

// exec runs a shell command in a container.
func (c *containerd) exec(id, script string) (string, error) {
	out, err := c.ctr("tasks", "exec", "--exec-id", fmt.Sprintf("test-%d", execs.Add(1)), id, "/bin/sh", "-c", script)
	return strings.TrimSpace(out), err
}

// end ends containerd. It fails the test if an agent has left a container.
func (c *containerd) end() {
	if left, err := c.ctr("containers", "list"); err != nil || strings.Count(left, "\n") > 1 {
		c.t.Errorf("containers are left, %v:\n%s", err, left)
	}
	_ = c.proc.cmd.Process.Kill()
	<-c.proc.done
	if c.t.Failed() {
		text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		lines := strings.Split(string(text), "\n")
		c.t.Logf("end of the log of containerd:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}
