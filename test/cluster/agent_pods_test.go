//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// anAgent starts one agent, and storage that it uses.
func anAgent(t *testing.T, name string, sidecars ...string) (*shared, *agentNode) {
	t.Helper()
	s := newShared(t, name+".test", map[string]string{name: "east"}, append(sidecars, "csi-provisioner", "csi-attacher")...)
	n := newAgents(t, name)[0]
	s.serve(n.node)
	return s, n
}

// done waits until the node has no volume, and deletes the claim.
func (n *agentNode) done(s *shared, claim string) {
	n.t.Helper()
	n.emptied()
	s.unclaim(n.node, claim)
}

// A pod with a claim runs on a node that an agent registered, and reads and writes its
// volume. When the pod is deleted, its container ends, then its volume is unmounted, then
// its object goes. The status follows each step.
func TestAnAgentRunsAPod(t *testing.T) {
	s, n := anAgent(t, "agent-run")
	s.claim("run", "1Gi", nil)
	createPod(t, boxPod(n.name, "runs", "cat /data/in 2>/dev/null; echo from inside > /data/out; "+forever, fromClaim("run")))
	p := n.podUntil("runs", "is ready", podReady)
	if p.Status.Phase != corev1.PodRunning || p.Status.HostIP == "" || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the status of a running pod is %+v", p.Status)
	}
	n.hasFile(filepath.Join(n.at("runs", "data"), "out"), "from inside\n")
	must(t, os.WriteFile(filepath.Join(n.at("runs", "data"), "in"), []byte("from the host"), 0o644))
	if got := n.runtime.in(p, "cat /data/in"); got != "from the host" {
		t.Errorf("the container reads %q", got)
	}
	must(t, control.client.CoreV1().Pods("default").Delete(t.Context(), "runs", metav1.DeleteOptions{}))
	n.goneFrom("runs")
	if left := n.mounts(); len(left) > 0 && strings.Contains(strings.Join(left, " "), string(p.UID)) {
		t.Errorf("the pod's object went before its mounts: %v", left)
	}
	n.done(s, "run")
}

// goneFrom waits until the API server no longer has the pod.
func (n *agentNode) goneFrom(name string) {
	n.t.Helper()
	n.eventually("pod "+name+" is gone", func() bool {
		_, err := control.client.CoreV1().Pods("default").Get(n.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// A user deletes a pod by force, so its object goes at once, while its container ends
// slowly. This happens once while the agent runs and once while it is down. The volume
// stays mounted until the container has ended.
//
// Faults: A192.
func TestAForcedDeletionLeavesTheVolumeToTheContainer(t *testing.T) {
	s, n := anAgent(t, "agent-force")
	s.claim("forced", "1Gi", nil)
	n.endsSlowly(s, "forced-1", func() {})
	n.endsSlowly(s, "forced-2", n.kill)
	n.done(s, "forced")
}

// endsSlowly calls before, deletes the pod by force, and checks that its volume outlives
// the container.
func (n *agentNode) endsSlowly(s *shared, name string, before func()) {
	n.t.Helper()
	slow := "trap 'sleep 1; exit 0' TERM; echo started > /data/log; while :; do sleep 0.1; done"
	createPod(n.t, boxPod(n.name, name, slow, fromClaim("forced")))
	p := n.podUntil(name, "is ready", podReady)
	log := filepath.Join(s.dir, "volumes", s.volume("forced").ID, "data", "log")
	n.hasFile(log, "started\n")
	before()
	deletePod(n.t, name)
	if n.hasEnded() {
		n.startAgent()
	}
	var alive time.Time // when the container was last seen running
	n.eventually("the container has ended", func() bool {
		at := time.Now()
		tasks, err := n.runtime.ctr("tasks", "list")
		lives := err == nil && strings.Contains(tasks, containerOf(p))
		if lives {
			alive = at
		}
		return err == nil && !lives
	})
	n.emptied()
	if at := s.last("NodeUnpublishVolume"); at.Before(alive) {
		n.t.Errorf("%s: unpublished at %s, and the container lived at %s", name, at.Format(time.StampMilli), alive.Format(time.StampMilli))
	}
}

// hasEnded reports whether the agent was killed.
func (n *agentNode) hasEnded() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// last returns when the call last began.
func (s *shared) last(call string) (at time.Time) {
	s.t.Helper()
	events, err := csistrict.ReadTranscript(s.dir)
	must(s.t, err)
	for _, e := range events {
		if e.Event == csistrict.EventBegin && e.Call == call {
			at = e.Time
		}
	}
	return at
}

// Containers get the mounts that csi-volmgr returns for them. An init container makes a
// directory that the next container has as its subPath. One mount sees later mounts in the
// volume, one is read-only, and the containers have the volume's group.
func TestContainersOfAnAgentHaveTheirMounts(t *testing.T) {
	s, n := anAgent(t, "agent-mounts")
	s.claim("parts", "1Gi", nil)
	p := boxPod(n.name, "parts", forever, fromClaim("parts"), corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	group, slave := int64(4321), corev1.MountPropagationHostToContainer
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	first := p.Spec.Containers[0]
	first.Name, first.Command = "first", []string{"/bin/sh", "-c", "mkdir -p /data/sub /data/later && echo made by $(WHO) > /data/sub/file"}
	first.Env = []corev1.EnvVar{{Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	first.Command[2] = strings.ReplaceAll(first.Command[2], "mkdir", "busybox mkdir")
	p.Spec.InitContainers = []corev1.Container{first}
	main := &p.Spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{
		{Name: "data", MountPath: "/sub", SubPath: "sub"},
		{Name: "data", MountPath: "/read", ReadOnly: true},
		{Name: "data", MountPath: "/slave", MountPropagation: &slave},
		{Name: "scratch", MountPath: "/scratch"},
	}
	createPod(t, p)
	p = n.podUntil("parts", "is ready", podReady)
	if got := n.runtime.in(p, "cat /sub/file; touch /read/no 2>/dev/null || echo refused; touch /scratch/yes && ls /scratch"); got != "made by parts\nrefused\nyes" {
		t.Errorf("in the container: %q", got)
	}
	if got := n.runtime.in(p, "busybox id -G"); !strings.Contains(" "+got+" ", " 4321 ") {
		t.Errorf("its groups are %q", got)
	}
	later := filepath.Join(n.at("parts", "data"), "later")
	must(t, unix.Mount("none", later, "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(later, "file"), nil, 0o644))
	if got := n.runtime.in(p, "ls /slave/later"); got != "file" {
		t.Errorf("HostToContainer: what is mounted later shows as %q", got)
	}
	must(t, unix.Unmount(later, 0))
	n.endPod("parts")
	n.done(s, "parts")
}

// A container has a raw block volume as a device, and sees its new size once the claim has
// grown.
func TestAnAgentsContainerSeesItsDeviceGrow(t *testing.T) {
	s, n := anAgent(t, "agent-block", "csi-resizer")
	block := corev1.PersistentVolumeBlock
	_, err := control.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "device"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("64Mi")}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	p := boxPod(n.name, "device", forever, fromClaim("device"))
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/xvda"}}
	createPod(t, p)
	p = n.podUntil("device", "is ready", podReady)
	if got := n.runtime.in(p, "printf 'on the device' > /dev/xvda && sync && busybox blockdev --getsize64 /dev/xvda"); got != "67108864" {
		t.Errorf("the device has the size %q", got)
	}
	n.kill() // the daemon reads claims again at its start
	s.resize("device", "128Mi")
	n.startAgent()
	s.hasSize(n.node, "device", "128Mi")
	if got := n.runtime.in(p, "busybox blockdev --getsize64 /dev/xvda; busybox head -c 13 /dev/xvda"); got != "134217728\non the device" {
		t.Errorf("the device has the size and content %q", got)
	}
	n.endPod("device")
	n.done(s, "device")
}

// The container runtime dies with all its containers. When it is back, the pod gets a new
// container with the same volume, and its status counts a restart.
func TestAnAgentStartsAgainWhatItsRuntimeLost(t *testing.T) {
	s, n := anAgent(t, "agent-crash")
	s.claim("crash", "1Gi", nil)
	createPod(t, boxPod(n.name, "crash", "echo started >> /data/log; "+forever, fromClaim("crash")))
	before := n.podUntil("crash", "is ready", podReady)
	log := filepath.Join(n.at("crash", "data"), "log")
	n.hasFile(log, "started\n") // the container is ready before its program has written anything
	n.runtime.restart()
	p := n.podUntil("crash", "is started again", func(p *corev1.Pod) bool { return podReady(p) && containerOf(p) != containerOf(before) })
	if c := p.Status.ContainerStatuses[0]; c.RestartCount != 1 || c.LastTerminationState.Terminated == nil {
		t.Errorf("the container's status is %+v", c)
	}
	n.hasFile(log, "started\nstarted\n")
	n.endPod("crash")
	n.done(s, "crash")
}

// Pods end by themselves. When a pod succeeds, its volume is unmounted and its object
// stays. A pod that fails is restarted with growing pauses. The agent refuses a pod with
// fields that it does not support, names the fields, and makes nothing.
func TestPodsThatEndOrAreRefused(t *testing.T) {
	s, n := anAgent(t, "agent-ends")
	s.claim("job", "1Gi", nil)
	job := boxPod(n.name, "job", "echo done > /data/out", fromClaim("job"))
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	createPod(t, job)
	p := n.podUntil("job", "has succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	if e := p.Status.ContainerStatuses[0].State.Terminated; e == nil || e.ExitCode != 0 {
		t.Errorf("the container's state is %+v", p.Status.ContainerStatuses[0].State)
	}
	n.emptied()
	n.endPod("job")

	createPod(t, boxPod(n.name, "fails", "echo once more >> /data/log; exit 3", fromClaim("job")))
	p = n.podUntil("fails", "waits to be started again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil
	})
	if c := p.Status.ContainerStatuses[0]; c.State.Waiting.Reason != "CrashLoopBackOff" || c.LastTerminationState.Terminated.ExitCode != 3 || podReady(p) {
		t.Errorf("the container's status is %+v", c)
	}
	n.endPod("fails")

	refused := boxPod(n.name, "refused", forever, fromClaim("job"))
	refused.Spec.HostNetwork = false
	refused.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	createPod(t, refused)
	p = n.podUntil("refused", "is refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	for _, field := range []string{"spec.hostNetwork: false", "spec.containers[0].livenessProbe"} {
		if p.Status.Reason != "UnsupportedByAgent" || !strings.Contains(p.Status.Message, field) {
			t.Errorf("refused with %s: %s", p.Status.Reason, p.Status.Message)
		}
	}
	n.endPod("refused")
	n.done(s, "job")
}

// While the API server is away, the agent restarts a container that ends, with its volume.
// When the server is back, the status says so.
//
// Faults: A193.
func TestAnAgentStartsContainersWithoutTheServer(t *testing.T) {
	s, n := anAgent(t, "agent-alone")
	s.claim("alone", "1Gi", nil)
	createPod(t, boxPod(n.name, "alone", "echo started >> /data/log; "+forever, fromClaim("alone")))
	p := n.podUntil("alone", "is ready", podReady)
	log := filepath.Join(n.at("alone", "data"), "log")
	n.hasFile(log, "started\n")
	control.kill("kube-apiserver")
	if out, err := n.runtime.ctr("tasks", "kill", "--signal", "KILL", containerOf(p)); err != nil {
		t.Errorf("kill the container: %v\n%s", err, out)
	}
	n.hasFile(log, "started\nstarted\n")
	must(t, control.startAPI(t.Context()))
	n.podUntil("alone", "is ready again", func(p *corev1.Pod) bool { return podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	n.endPod("alone")
	n.done(s, "alone")
}
