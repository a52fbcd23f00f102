//go:build cluster

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
)

// execs numbers the commands that run in containers.
var execs atomic.Int64

// agentNode is a node that examples/agent registers and whose pods it runs.
type agentNode struct {
	*node
	runtime *containerd
}

// newAgents starts agents that share a container runtime, each under its node's own
// identity, and waits until their Nodes are Ready and accept pods. It makes their root
// directories shared mounts before the runtime starts, so that the runtime sees later
// mounts there.
func newAgents(t *testing.T, names ...string) (nodes []*agentNode) {
	t.Helper()
	for _, name := range names {
		n := &agentNode{node: &node{t: t, name: name, dir: place(name)}}
		must(t, os.Mkdir(n.dir, 0o755))
		t.Cleanup(n.remove)
		n.share()
		n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
		id, err := control.identity("system:node:"+name, "system:nodes")
		must(t, err)
		must(t, writeKubeconfig(n.kubeconfig, id, control.path("ca.crt")))
		nodes = append(nodes, n)
	}
	c := startContainerd(t, names[0])
	for _, n := range nodes {
		n.runtime = c
		n.startAgent()
		t.Cleanup(n.kill)
	}
	for _, n := range nodes {
		n.eventually("its Node is ready", func() bool {
			o, err := control.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			return err == nil && nodeReady(o)
		})
		n.update(func(o *corev1.Node) { o.Spec.Taints = nil }) // admission added them, and no controller here removes them
	}
	return nodes
}

func nodeReady(o *corev1.Node) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// update changes the Node as an administrator would.
func (n *agentNode) update(change func(*corev1.Node)) {
	n.t.Helper()
	nodes := control.client.CoreV1().Nodes()
	for {
		o, err := nodes.Get(n.t.Context(), n.name, metav1.GetOptions{})
		must(n.t, err)
		change(o)
		if _, err = nodes.Update(n.t.Context(), o, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			must(n.t, err)
			return
		}
	}
}

// startAgent starts the program, and returns when its API answers.
func (n *agentNode) startAgent() {
	n.t.Helper()
	socket := filepath.Join(n.dir, "run", "api.sock")
	must(n.t, os.MkdirAll(filepath.Dir(socket), 0o700))
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(n.t, err)
	defer log.Close()
	n.api = client.New(socket)
	n.daemon = exec.Command(agent, "-kubeconfig", n.kubeconfig, "-node-name", n.name, "-root-dir", filepath.Join(n.dir, "root"),
		"-state-dir", filepath.Join(n.dir, "state"), "-socket", socket, "-log-dir", filepath.Join(n.dir, "pods"),
		"-container-runtime-endpoint", n.runtime.endpoint())
	n.daemon.Args = append(n.daemon.Args, n.flags...)
	n.daemon.Stdout, n.daemon.Stderr = log, log
	n.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(n.t, n.daemon.Start())
	n.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(n.daemon, n.ended)
	n.eventually("the agent answers", func() bool {
		_, err := n.api.Version(n.t.Context())
		return err == nil
	})
}

// boxPod returns a pod whose container runs a shell script.
func boxPod(node, name, script string, volumes ...corev1.Volume) *corev1.Pod {
	p, grace := podWith(node, name, volumes...), int64(5)
	p.Spec.HostNetwork, p.Spec.TerminationGracePeriodSeconds = true, &grace
	p.Spec.Containers[0].Image = boxImage
	p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", script}
	return p
}

// forever is a script that runs until SIGTERM, and then ends at once.
const forever = "trap 'exit 0' TERM; while :; do sleep 0.1; done"

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podUntil waits until ok returns true for the pod, and returns it.
func (n *agentNode) podUntil(name, what string, ok func(*corev1.Pod) bool) (found *corev1.Pod) {
	n.t.Helper()
	n.eventually("pod "+name+" "+what, func() bool {
		p, err := control.client.CoreV1().Pods("default").Get(n.t.Context(), name, metav1.GetOptions{})
		found = p
		return err == nil && ok(p)
	})
	return found
}

// containerOf returns the id of the first container's current run.
func containerOf(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

// in runs a shell command in the pod's first container.
func (c *containerd) in(p *corev1.Pod, script string) string {
	c.t.Helper()
	out, err := c.exec(containerOf(p), script)
	if err != nil {
		c.t.Fatalf("in pod %s: %s: %v\n%s", p.Name, script, err, out)
	}
	return out
}

// endPod deletes the pod as a user does, and waits until the agent has ended it and the
// pod's object is gone.
func (n *agentNode) endPod(name string) {
	n.t.Helper()
	must(n.t, control.client.CoreV1().Pods("default").Delete(n.t.Context(), name, metav1.DeleteOptions{}))
	n.eventually("pod "+name+" has ended", func() bool {
		_, err := control.client.CoreV1().Pods("default").Get(n.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
