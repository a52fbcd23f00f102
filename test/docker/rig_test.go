//go:build docker

package docker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// debianPath finds Debian's programs before others of the same names.
const debianPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// busybox is the image that every test uses.
const busybox = "localhost/busybox:1"

// rig is a node with csi-volmgr and container engines.
type rig struct {
	*harness.Node
	setup
	proxy   *proxy
	daemon  *harness.Process
	driver  *harness.Process // the local driver
	dockerd *harness.Process
	// containerd is a process of the rig's own, as on Debian, since dockerd gives one that it starts
	// only 15 seconds to answer.
	containerd *harness.Process
	flags      []string // of the daemon
	env        []string // of the engines
}

// setup is what differs between rigs.
type setup struct {
	plugin  string   // the name by which engines know it: all plugins of dockerd are in one directory
	program string   // csi-volmgr
	vars    []string // for the daemon's environment
}

// newRig makes a node on which csi-volmgr serves the local driver and, behind a proxy, the plugin.
// The StorageClass local is the default. No engine runs yet.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, setup{plugin: "csi", program: program})
}

func newRigOf(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{Node: harness.NewNode(t, s.program, "run/api.sock"), setup: s}
	r.flags = []string{"--volume-plugin", "--volume-plugin-socket", r.Path("plugin.sock")}
	r.env = []string{
		"PATH=" + debianPath, "HOME=" + r.Dir, "DOCKER_HOST=unix://" + r.Path("docker.sock"),
		"CONTAINERS_CONF=" + r.Path("containers.conf"),
	}
	socket := "/run/docker/plugins/" + r.plugin + ".sock"
	r.configurePodman(socket)
	r.proxy = newProxy(t, socket, r.Path("plugin.sock"))
	t.Cleanup(func() { r.ShowIfFailed(r.daemon, r.containerd, r.dockerd) })
	r.startDaemon()
	r.driver = harness.Start(t, r.Path("driver.log"), exec.Command(program, "local-driver", "--node-id", harness.Name,
		"--root-dir", r.Root, "--state-dir", r.Path("driver")))
	r.up()
	r.Apply(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: local.csi-volmgr.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
`)
	return r
}

// configurePodman gives podman the plugin, limits that a process without CAP_SYS_RESOURCE can set,
// and locks that it shares with no other rig.
func (r *rig) configurePodman(socket string) {
	r.T.Helper()
	text := fmt.Sprintf(`[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
lock_type = "file"
[engine.volume_plugins]
%s = %q
`, r.plugin, socket)
	if err := os.WriteFile(r.Path("containers.conf"), []byte(text), 0o600); err != nil {
		r.T.Fatal(err)
	}
}

// podmanArgs gives podman directories below the node's. They are flags because podman's own
// clean-up after a container gets the flags, but only CONTAINERS_CONF of the environment.
func (r *rig) podmanArgs() []string {
	return []string{
		"--root", r.Path("podman/root"), "--runroot", r.Path("podman/run"), "--tmpdir", r.Path("podman/tmp"),
		"--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
	}
}

// startDaemon starts csi-volmgr under a supervisor, which restarts it after a kill.
func (r *rig) startDaemon() {
	r.T.Helper()
	r.daemon = r.Answered(func() *harness.Process {
		words := append(slices.Clone(r.vars), r.Program)
		return harness.Supervise(r.T, r.Path("daemon.log"), "/usr/bin/env", append(words, r.Daemon(r.flags...)...)...)
	})
}

// up waits until csi-volmgr answers and knows the local driver; csi-volmgr may be killed meanwhile.
func (r *rig) up() {
	r.T.Helper()
	r.Eventually("csi-volmgr to have its driver", func() bool {
		drivers, err := r.API.Drivers(r.T.Context())
		return err == nil && slices.ContainsFunc(drivers, func(d server.DriverStatus) bool {
			return d.Name == "local.csi-volmgr.dev" && d.Up
		})
	})
}

// startDocker starts or restarts dockerd and gives it the image.
func (r *rig) startDocker(flags ...string) {
	r.T.Helper()
	cmd := exec.Command("dockerd", append([]string{
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
		"--storage-driver=vfs", "--data-root", r.Path("docker/root"), "--exec-root", r.Path("docker/exec"),
		"--pidfile", r.Path("docker/pid"), "--host", "unix://" + r.Path("docker.sock"), "--containerd", r.startContainerd(),
	}, flags...)...)
	cmd.Path, cmd.Err = "/usr/sbin/dockerd", nil
	cmd.Env = r.env
	os.Remove(r.Path("docker/pid")) // a killed dockerd leaves it
	r.dockerd = harness.Start(r.T, r.Path("dockerd.log"), cmd)
	r.Eventually("dockerd to answer", func() bool {
		if !r.dockerd.Runs() {
			r.T.Fatalf("dockerd ended: %v\n%s", r.dockerd.Err(), r.dockerd.Tail())
		}
		return r.run("docker", "version").Code == 0
	})
	if r.run("docker", "image", "inspect", busybox).Code != 0 {
		r.docker("import", image, busybox)
	}
	r.T.Cleanup(r.stopDocker)
}

// startContainerd starts or restarts containerd and returns its socket.
func (r *rig) startContainerd() string {
	r.T.Helper()
	if r.containerd != nil {
		r.containerd.Kill()
	}
	config, socket := r.Path("containerd.toml"), r.Path("containerd.sock")
	text := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.T.Fatal(err)
	}
	cmd := exec.Command("containerd", "--config", config, "--address", socket,
		"--root", r.Path("docker/containerd"), "--state", r.Path("docker/exec/containerd"))
	cmd.Path, cmd.Err = "/usr/bin/containerd", nil
	cmd.Env = r.env
	r.containerd = harness.Start(r.T, r.Path("containerd.log"), cmd)
	r.Eventually("containerd to answer", func() bool {
		if !r.containerd.Runs() {
			r.T.Fatalf("containerd ended: %v\n%s", r.containerd.Err(), r.containerd.Tail())
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return socket
}

// stopDocker removes all containers and stops dockerd.
func (r *rig) stopDocker() {
	if !r.dockerd.Runs() {
		return
	}
	ids, err := r.command("docker", "ps", "-aq").Output()
	if err == nil && len(ids) > 0 {
		err = r.command("docker", append([]string{"rm", "-f"}, strings.Fields(string(ids))...)...).Run()
	}
	if err != nil {
		r.T.Errorf("remove the containers: %v", err)
	}
	if err := r.dockerd.Ask(); err != nil {
		r.T.Errorf("dockerd: %v", err)
	}
}

// startPodman gives podman the image, and removes its containers at the end of the test. A container's
// monitor then starts podman's own clean-up, which writes below the node's directory for a while yet.
func (r *rig) startPodman() {
	r.T.Helper()
	r.podman("import", image, busybox)
	r.T.Cleanup(func() {
		if out, err := r.command("podman", "rm", "-fa", "-t", "0").CombinedOutput(); err != nil {
			r.T.Errorf("remove the containers: %v\n%s", err, out)
		}
		r.Eventually("podman's own clean-up to end", func() bool {
			return !slices.ContainsFunc(processes(r.T), func(pid int) bool {
				return strings.Contains(r.words(pid), r.Path("podman/root"))
			})
		})
	})
}

// words returns the command line of a process, "" if it has ended.
func (r *rig) words(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		r.T.Error(err)
	}
	return string(line)
}

// command returns an engine's command; unlike run, it works during the cleanup of a test.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	if name == "podman" {
		args = append(r.podmanArgs(), args...)
	}
	cmd := exec.Command(filepath.Join("/usr/bin", name), args...)
	cmd.Env = r.env
	return cmd
}

// run runs an engine's command.
func (r *rig) run(name string, args ...string) harness.Result {
	r.T.Helper()
	cmd := r.command(name, args...)
	return harness.Run(r.T, "", "/usr/bin/env", append(append([]string{"-i"}, r.env...), cmd.Args...)...)
}

// must runs a command that must succeed, and returns its output.
func (r *rig) must(name string, args ...string) string {
	r.T.Helper()
	got := r.run(name, args...)
	if got.Code != 0 {
		r.T.Fatalf("%s %s: exit code %d\n%s%s", name, strings.Join(args, " "), got.Code, got.Stdout, got.Stderr)
	}
	return strings.TrimSpace(got.Stdout)
}

// refused runs a command that must fail with the words in its error.
func (r *rig) refused(words string, name string, args ...string) {
	r.T.Helper()
	got := r.run(name, args...)
	if got.Code == 0 {
		r.T.Errorf("%s %s: done, want an error with %q", name, strings.Join(args, " "), words)
	} else if !strings.Contains(got.Stderr, words) {
		r.T.Errorf("%s %s: got %q, want %q in it", name, strings.Join(args, " "), got.Stderr, words)
	}
}

func (r *rig) docker(args ...string) string { r.T.Helper(); return r.must("docker", args...) }
func (r *rig) podman(args ...string) string { r.T.Helper(); return r.must("podman", args...) }

// engines runs f with each engine, on a rig of its own.
func engines(t *testing.T, f func(t *testing.T, r *rig, engine string)) {
	t.Run("docker", func(t *testing.T) {
		r := newRig(t)
		r.startDocker()
		f(t, r, "docker")
	})
	t.Run("podman", func(t *testing.T) {
		r := newRig(t)
		r.startPodman()
		f(t, r, "podman")
	})
}

// volumeCreate creates a volume; podman 4.3 has no -d.
func (r *rig) volumeCreate(engine, name string, options ...string) {
	r.T.Helper()
	r.must(engine, r.createArgs(name, options...)...)
}

func (r *rig) createArgs(name string, options ...string) []string {
	args := []string{"volume", "create", "--driver", r.plugin}
	for _, o := range options {
		args = append(args, "-o", o)
	}
	return append(args, name)
}

// pid returns the process of a running container.
func (r *rig) pid(engine, container string) int {
	r.T.Helper()
	pid, err := strconv.Atoi(r.must(engine, "inspect", "--format", "{{.State.Pid}}", container))
	if err != nil || pid == 0 {
		r.T.Fatalf("process of container %s: %d, %v", container, pid, err)
	}
	return pid
}

// alive reports whether a process runs.
func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

// called returns how many calls of a driver's method by csi-volmgr succeeded, over all its lives.
func (r *rig) called(method string) (n int) {
	r.T.Helper()
	b, err := os.ReadFile(r.Path("daemon.log"))
	if err != nil {
		r.T.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "csi call ended") && strings.Contains(line, "call="+method+" ") &&
			strings.Contains(line, "code=OK ") {
			n++
		}
	}
	return n
}

// volumeMounts lists the mounts of volumes on the host.
func (r *rig) volumeMounts() (found []string) {
	r.T.Helper()
	for _, m := range r.Mounts() {
		if strings.HasPrefix(m, r.Root+"/") {
			found = append(found, m)
		}
	}
	return found
}

// nothingMounted waits until csi-volmgr has unmounted everything, after the kernel has shown the
// end of each use.
func (r *rig) nothingMounted() {
	r.T.Helper()
	r.Eventually("every volume to be unmounted", func() bool { return len(r.volumeMounts()) == 0 && len(r.Loops()) == 0 })
}

// lingered waits until, after the use that just ended, csi-volmgr has asked the kernel which
// processes have the volume. If csi-volmgr believed the engine instead, it would unmount the volume
// at that time, which the caller would see.
func (r *rig) lingered(volume string) {
	r.T.Helper()
	begun := time.Now()
	r.Eventually("csi-volmgr to look who has volume "+volume, func() bool {
		v, counted := r.status(volume)
		return counted || v.HoldersAt.After(begun) || v.Mountpoint == ""
	})
}

// status returns the plugin's view of a volume. counted reports whether the plugin counts a use of
// it, in which case csi-volmgr does not ask the kernel.
func (r *rig) status(volume string) (v named.View, counted bool) {
	r.T.Helper()
	answer := r.ask("VolumeDriver.Get", volume)
	var got struct {
		Volume struct {
			Mountpoint string
			Status     struct {
				named.View
				Explain []string
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		r.T.Fatalf("status of volume %s: %v in %s", volume, err, answer)
	}
	if e := got.Volume.Status.Explain; len(e) < 2 || !strings.HasPrefix(e[0], "verdict: ") {
		r.T.Errorf("the chain of volume %s: %q", volume, e)
	}
	v, v.Mountpoint = got.Volume.Status.View, got.Volume.Mountpoint
	return v, len(v.Uses) > 0
}

// ask sends a request to the plugin directly, without the proxy.
func (r *rig) ask(method, volume string) string {
	r.T.Helper()
	if volume == "" {
		return r.post(method, map[string]any{})
	}
	return r.post(method, map[string]any{"Name": volume})
}

func (r *rig) post(method string, request map[string]any) string {
	r.T.Helper()
	in, err := json.Marshal(request)
	if err != nil {
		r.T.Fatal(err)
	}
	post, err := http.NewRequestWithContext(r.T.Context(), http.MethodPost, "http://plugin/"+method, bytes.NewReader(in))
	if err != nil {
		r.T.Fatal(err)
	}
	answer, err := r.proxy.client.Do(post)
	if err != nil {
		r.T.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	return string(b)
}
