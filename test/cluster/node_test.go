//go:build cluster

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
)

// node is a Node object and the daemon that serves it.
type node struct {
	t          *testing.T
	name, dir  string
	kubeconfig string
	flags      []string // additional flags of the daemon
	api        *client.Client
	daemon     *exec.Cmd
	ended      chan struct{}
}

// place returns the directory of the node with this name.
func place(name string) string { return control.path("n-" + name) }

// newNode registers a node, as the program that runs its pods would, and starts a daemon
// that uses the identity.
func newNode(t *testing.T, name string, identity *rest.Config) *node {
	t.Helper()
	return newNodeWith(t, name, identity)
}

// newNodeWith is newNode with additional flags for the daemon.
func newNodeWith(t *testing.T, name string, identity *rest.Config, flags ...string) *node {
	t.Helper()
	n := &node{t: t, name: name, dir: place(name), flags: flags}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.clean)
	n.share()
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	if err := writeKubeconfig(n.kubeconfig, identity, control.path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	n.register()
	n.start()
	return n
}

// share makes the root directory a shared mount, so that mounts below it reach other mount
// namespaces, as on an installed node. Here / may be a private mount.
func (n *node) share() {
	n.t.Helper()
	root := filepath.Join(n.dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount("", root, "", unix.MS_SHARED, ""); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) register() {
	n.t.Helper()
	ctx, nodes := n.t.Context(), control.client.CoreV1().Nodes()
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name}}}
	o.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("110")}
	o.Status.Allocatable = o.Status.Capacity
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	made, err := nodes.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	made.Spec.Taints = nil // admission added them, and no controller here removes them
	if _, err := nodes.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// start starts the daemon and returns when it answers.
func (n *node) start() {
	n.t.Helper()
	socket := filepath.Join(n.dir, "run", "api.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		n.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	n.api = client.New(socket)
	n.daemon = exec.Command(program, "run", "--root-dir", filepath.Join(n.dir, "root"), "--state-dir", filepath.Join(n.dir, "state"),
		"--socket", socket, "--http-address", "off", "--node-name", n.name, "--kubeconfig", n.kubeconfig, "--local-driver", "--log-level", "debug")
	n.daemon.Args = append(n.daemon.Args, n.flags...)
	n.daemon.Stdout, n.daemon.Stderr = log, log
	n.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.daemon.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(n.daemon, n.ended)
	n.eventually("the daemon answers", func() bool {
		_, err := n.api.Version(n.t.Context())
		return err == nil
	})
}

// kill kills the daemon.
func (n *node) kill() {
	_ = n.daemon.Process.Kill()
	<-n.ended
	n.api.Close()
}

// stop stops the daemon with SIGTERM, so that its journal has everything it knew.
func (n *node) stop() {
	_ = n.daemon.Process.Signal(syscall.SIGTERM)
	<-n.ended
	n.api.Close()
}

func (n *node) clean() {
	n.kill()
	n.remove()
}

// remove removes all remains of a node whose daemon has ended.
func (n *node) remove() {
	if n.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(n.dir, "log"))
		lines := strings.Split(string(b), "\n")
		n.t.Logf("end of the log of %s:\n%s", n.name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
	for _, m := range append(n.mounts(), filepath.Join(n.dir, "root")) {
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	out, _ := exec.Command("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").Output()
	for _, line := range strings.Split(string(out), "\n") {
		if dev, file, ok := strings.Cut(line, " "); ok && strings.HasPrefix(file, n.dir+"/") {
			_ = exec.Command("losetup", "--detach", dev).Run()
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := control.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		n.t.Error(err)
	}
}

// mounts lists the mount points below the node's root directory, the newest first.
func (n *node) mounts() (out []string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], n.dir+"/root/") {
			out = append(out, f[4])
		}
	}
	slices.Reverse(out)
	return out
}

// eventually waits until ok returns true. The daemon must not end meanwhile.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	n.until(n.ended, what, ok)
}

// eventuallyOff is eventually while the daemon is down.
func (n *node) eventuallyOff(what string, ok func() bool) {
	n.t.Helper()
	n.until(nil, what, ok)
}

func (n *node) until(ended <-chan struct{}, what string, ok func() bool) {
	n.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ended:
			n.t.Fatalf("%s: the daemon ended", what)
		case <-deadline:
			n.t.Fatalf("%s: not after %s; the daemon's problems: %s", what, patience, n.problems())
		case <-tick.C:
		}
	}
}

func (n *node) problems() string {
	out, _ := exec.Command(program, "--socket", filepath.Join(n.dir, "run", "api.sock"), "get", "problems").CombinedOutput()
	pods, _ := exec.Command(program, "--socket", filepath.Join(n.dir, "run", "api.sock"), "get", "volumes", "-o", "wide").CombinedOutput()
	return string(out) + string(pods)
}

// mounted waits until the pod has its volumes, and returns the path of the first.
func (n *node) mounted(pod string) (path string) {
	n.t.Helper()
	n.eventually("pod "+pod+" has its volumes", func() bool {
		mounts, err := n.api.Mounts(n.t.Context(), "default", pod)
		if err != nil || len(mounts) == 0 {
			return false
		}
		p, err := n.api.Pod(n.t.Context(), "default", pod)
		path = mounts[0].HostPath
		return err == nil && p.Ready && path != ""
	})
	return path
}

// inUse returns the Node's status.volumesInUse.
func (n *node) inUse() []corev1.UniqueVolumeName {
	o, err := control.client.CoreV1().Nodes().Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		return []corev1.UniqueVolumeName{"not known: " + corev1.UniqueVolumeName(err.Error())}
	}
	return o.Status.VolumesInUse
}

// gone deletes the pod at once, as if its containers had ended, and waits until nothing on
// the node is mounted or in use.
func (n *node) gone(pod string) {
	n.t.Helper()
	zero := int64(0)
	if err := control.client.CoreV1().Pods("default").Delete(n.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("nothing is mounted", func() bool { return len(n.mounts()) == 0 })
	n.eventually("nothing is in use", func() bool { return len(n.inUse()) == 0 })
}
