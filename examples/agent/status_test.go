package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sayStatus returns a container's status in one line.
func sayStatus(s corev1.ContainerStatus) string {
	text := s.Name + " "
	switch {
	case s.State.Waiting != nil:
		text += s.State.Waiting.Reason
		if s.State.Waiting.Message != "" {
			text += " (" + s.State.Waiting.Message + ")"
		}
	case s.State.Running != nil:
		text += "runs"
	case s.State.Terminated != nil:
		text += fmt.Sprintf("ended %d", s.State.Terminated.ExitCode)
	}
	if s.LastTerminationState.Terminated != nil {
		text += fmt.Sprintf(", before %d", s.LastTerminationState.Terminated.ExitCode)
	}
	if s.RestartCount > 0 {
		text += fmt.Sprintf(", restarts %d", s.RestartCount)
	}
	if s.Ready {
		text += ", ready"
	}
	return text
}

// sayPod returns a pod's status in one line: phase, containers, true conditions.
func sayPod(s corev1.PodStatus) string {
	parts := []string{string(s.Phase)}
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		parts = append(parts, sayStatus(c))
	}
	holds := []string{}
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			holds = append(holds, string(c.Type))
		}
	}
	return strings.Join(parts, "; ") + "; " + strings.Join(holds, " ")
}

func TestStatusOfAPod(t *testing.T) {
	const always, never = corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		f    facts
		want string
	}{
		{
			"waits for volumes", pod(always, false),
			facts{volumes: volumes{waits: "v waits for its attachment"}},
			"Pending; a ContainerCreating (v waits for its attachment); b ContainerCreating (v waits for its attachment); Initialized",
		},
		{
			"a step that failed", pod(always, false),
			facts{has: in(true), trouble: errors.New("no image")},
			"Pending; a CreateContainerError (no image); b CreateContainerError (no image); PodReadyToStartContainers Initialized",
		},
		{
			"mounts that cannot be made", pod(always, false),
			facts{has: in(true, run("a", exited, 1)), trouble: fmt.Errorf("%w: subPath \"..\"", errMounts)},
			"Pending; a CreateContainerConfigError (mounts of the container: subPath \"..\"), before 1; " +
				"b CreateContainerConfigError (mounts of the container: subPath \"..\"); PodReadyToStartContainers Initialized",
		},
		{
			"init containers run", pod(always, true),
			facts{has: in(true, run("i", runs, 0))},
			"Pending; i runs; a PodInitializing; b PodInitializing; PodReadyToStartContainers",
		},
		{
			"one failed and runs again", pod(always, true),
			facts{has: in(true, run("i", exited, 1).again(1, 1))},
			"Pending; i CrashLoopBackOff (started again at 2026-11-24T12:00:05Z), before 1, restarts 1; a PodInitializing; b PodInitializing; PodReadyToStartContainers",
		},
		{
			"one failed for good", pod(never, true),
			facts{has: in(true, run("i", exited, 1))},
			"Failed; i ended 1; a PodInitializing; b PodInitializing; PodReadyToStartContainers Initialized",
		},
		{
			"all run", pod(always, true),
			facts{has: in(true, run("i", exited, 0), run("a", runs, 0), run("b", runs, 0))},
			"Running; i ended 0, ready; a runs, ready; b runs, ready; PodReadyToStartContainers Initialized ContainersReady Ready",
		},
		{
			"the second run of one", pod(always, false),
			facts{has: in(true, run("a", runs, 0).again(1, 1), run("a", exited, 3), run("b", runs, 0))},
			"Running; a runs, before 3, restarts 1, ready; b runs, ready; PodReadyToStartContainers Initialized ContainersReady Ready",
		},
		{
			"one waits to run again", pod(always, false),
			facts{has: in(true, run("a", exited, 3).again(1, 1), run("b", runs, 0))},
			"Running; a CrashLoopBackOff (started again at 2026-11-24T12:00:05Z), before 3, restarts 1; b runs, ready; PodReadyToStartContainers Initialized",
		},
		{
			"its sandbox ended", pod(always, false),
			facts{has: in(false, run("a", exited, 137), run("b", exited, 137))},
			"Running; a CrashLoopBackOff, before 137; b CrashLoopBackOff, before 137; Initialized",
		},
		{
			"both ended well", pod(never, false),
			facts{has: in(true, run("a", exited, 0), run("b", exited, 0))},
			"Succeeded; a ended 0; b ended 0; PodReadyToStartContainers Initialized",
		},
		{
			"one did not", pod(never, false),
			facts{has: in(true, run("a", exited, 0), run("b", exited, 2))},
			"Failed; a ended 0; b ended 2; PodReadyToStartContainers Initialized",
		},
		{
			"deleted, and still running", deleted(pod(always, false)),
			facts{has: in(true, run("a", runs, 0), run("b", exited, 0))},
			"Running; a runs, ready; b ended 0; PodReadyToStartContainers Initialized",
		},
		{
			"deleted, and ended", deleted(pod(always, false)),
			facts{has: in(false, run("a", exited, 0), run("b", exited, 0))},
			"Succeeded; a ended 0; b ended 0; Initialized",
		},
		{
			"deleted, and ended badly", deleted(pod(always, false)),
			facts{has: in(false, run("a", exited, 137), run("b", exited, 0))},
			"Failed; a ended 137; b ended 0; Initialized",
		},
		{
			"deleted before it ran", deleted(pod(always, false)),
			facts{},
			"Failed; a ContainerCreating; b ContainerCreating; Initialized",
		},
		{
			"made and not started", pod(always, false),
			facts{has: in(true, run("a", created, 0))},
			"Pending; a ContainerCreating; b ContainerCreating; PodReadyToStartContainers Initialized",
		},
	} {
		tc.f.now = now
		if got := sayPod(statusOf(tc.pod, tc.f)); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// The fields of other writers in a pod's status stay, and the time of a condition is that
// of its last change; so an unchanged status is equal to the one before.
func TestStatusKeepsWhatOthersSay(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, false)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: "example.org/mine", Status: corev1.ConditionFalse}}
	p.Status.QOSClass = corev1.PodQOSBestEffort
	a := run("a", runs, 0)
	a.started = a.started.Add(time.Nanosecond) // the runtime's times have nanoseconds, the API server's only seconds
	f := facts{has: in(true, a, run("b", runs, 0)), ip: "192.0.2.7", runtime: "containerd", now: now}
	p.Status = statusOf(p, f)
	if c := p.Status.Conditions; c[0].Type != corev1.PodScheduled || c[1].Type != "example.org/mine" || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("the status is %+v", p.Status)
	}
	if s := p.Status; s.PodIP != "192.0.2.7" || s.HostIPs[0].IP != s.PodIP || s.ContainerStatuses[0].ContainerID != "containerd://a-0" || !s.StartTime.Equal(&metav1.Time{Time: now}) {
		t.Errorf("the status is %+v", p.Status)
	}
	sent, err := json.Marshal(p.Status)
	if err != nil {
		t.Fatal(err)
	}
	p.Status = corev1.PodStatus{}
	if err := json.Unmarshal(sent, &p.Status); err != nil {
		t.Fatal(err)
	}
	f.now = now.Add(time.Hour)
	if later := statusOf(p, f); !equality.Semantic.DeepEqual(later, p.Status) {
		t.Errorf("an hour later it is\n%v\nand was\n%v", later, p.Status)
	}
	f.has.containers[0].state = exited
	for _, c := range statusOf(p, f).Conditions {
		if c.Type == corev1.PodReady && !c.LastTransitionTime.Equal(&metav1.Time{Time: f.now}) {
			t.Errorf("what changed has the time %s", c.LastTransitionTime)
		}
	}
}

func TestStatusOfARefusedPod(t *testing.T) {
	s := statusOf(pod(corev1.RestartPolicyAlways, false), facts{refused: "spec.x", now: now})
	if s.Phase != corev1.PodFailed || s.Reason != reasonRefused || s.Message != "spec.x" || len(s.ContainerStatuses) > 0 {
		t.Errorf("the status is %+v", s)
	}
}
