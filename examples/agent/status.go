package main

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// facts are the inputs of a pod's status in addition to its object.
type facts struct {
	has     seen
	volumes volumes
	trouble error  // of the last step, if it failed
	refused string // why this agent does not run the pod
	runtime string // the container runtime's name, for container ids
	ip      string
	now     time.Time
}

// badConfig is the kubelet's reason for a container whose mounts cannot be made.
const badConfig = "CreateContainerConfigError"

// says returns the text of the last step's error.
func (f facts) says() string {
	if f.trouble == nil {
		return ""
	}
	return f.trouble.Error()
}

// statusOf returns the pod's new status. It begins with the current status, so that the
// fields of other writers stay.
func statusOf(pod *corev1.Pod, f facts) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.HostIP, s.PodIP = f.ip, f.ip
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: f.ip}}, []corev1.PodIP{{IP: f.ip}}
	if s.StartTime == nil {
		s.StartTime = &metav1.Time{Time: f.now}
	}
	if f.refused != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, reasonRefused, f.refused
		return s
	}
	s.Phase = phaseOf(pod, f.has)
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for i := range pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, containerStatus(pod, &pod.Spec.InitContainers[i], f, true))
	}
	ready := len(pod.Spec.Containers) > 0
	for i := range pod.Spec.Containers {
		c := containerStatus(pod, &pod.Spec.Containers[i], f, false)
		ready = ready && c.Ready
		s.ContainerStatuses = append(s.ContainerStatuses, c)
	}
	box, _ := f.has.box()
	why := "ContainersNotReady"
	if over(s.Phase) {
		why = "PodCompleted"
	}
	set := func(t corev1.PodConditionType, is bool, reason string) {
		s.Conditions = condition(s.Conditions, t, is, reason, f.now)
	}
	set(corev1.PodReadyToStartContainers, box.ready, "")
	set(corev1.PodInitialized, over(s.Phase) || initialized(pod, f.has), "ContainersNotInitialized")
	set(corev1.ContainersReady, ready, why)
	set(corev1.PodReady, ready, why)
	return s
}

// phaseOf returns the phase of a pod whose last phase was not final.
func phaseOf(pod *corev1.Pod, has seen) corev1.PodPhase {
	ending := pod.DeletionTimestamp != nil
	ran, ended, failed := 0, 0, false
	for _, c := range pod.Spec.InitContainers {
		if r, ok := has.last(c.Name); ok && r.exited() && r.exitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
	}
	for _, c := range pod.Spec.Containers {
		r, ok := has.last(c.Name)
		if ok {
			ran++
		}
		if ok && r.exited() && (ending || !restarts(pod.Spec.RestartPolicy, r.exitCode)) {
			ended++
			failed = failed || r.exitCode != 0
		}
	}
	all := len(pod.Spec.Containers)
	switch {
	case ending && !has.lives() && (failed || ended < all):
		return corev1.PodFailed // also a pod that was deleted before it ran
	case ending && has.lives():
		return running(ran == all)
	case ended == all && failed:
		return corev1.PodFailed
	case ended == all:
		return corev1.PodSucceeded
	}
	return running(ran == all)
}

func running(is bool) corev1.PodPhase {
	if is {
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// containerStatus returns a container's status: its current run, and the one before.
func containerStatus(pod *corev1.Pod, c *corev1.Container, f facts, isInit bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	var runs []container
	for _, r := range f.has.containers {
		if r.name == c.Name {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		reason, message := "ContainerCreating", f.volumes.waits
		if !isInit && !initialized(pod, f.has) {
			reason = "PodInitializing"
		}
		if f.trouble != nil {
			reason, message = "CreateContainerError", f.says()
		}
		if errors.Is(f.trouble, errMounts) {
			reason = badConfig
		}
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		started := false
		s.Started = &started
		return s
	}
	r := runs[0]
	s.RestartCount, s.ImageID, s.ContainerID = int32(r.attempt), r.imageID, f.runtime+"://"+r.id
	started := r.running()
	s.Started = &started
	s.Ready = started
	again := restarts(pod.Spec.RestartPolicy, r.exitCode)
	if isInit {
		again = r.exitCode != 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever
		s.Ready = r.exited() && r.exitCode == 0
	}
	if len(runs) > 1 && runs[1].exited() {
		s.LastTerminationState.Terminated = terminated(runs[1], f.runtime)
	}
	switch {
	case r.running():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: second(r.started)}
	case r.exited() && again && pod.DeletionTimestamp == nil:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: f.says()}
		if d := backOff(r, f.now); d == 0 && errors.Is(f.trouble, errMounts) {
			s.State.Waiting.Reason = badConfig
		} else if d > 0 {
			s.State.Waiting.Message = fmt.Sprintf("started again at %s", f.now.Add(d).UTC().Format(time.RFC3339))
		}
		s.LastTerminationState.Terminated = terminated(r, f.runtime)
	case r.exited():
		s.State.Terminated = terminated(r, f.runtime)
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: f.says()}
	}
	return s
}

func terminated(r container, runtime string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: r.exitCode, Reason: r.reason, Message: r.message, ContainerID: runtime + "://" + r.id,
		StartedAt: second(r.started), FinishedAt: second(r.finished),
	}
}

// second returns a time as the API server returns it, so that an unchanged status is
// equal to the one before.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// condition returns the conditions with this one set; reason says why it is false.
func condition(all []corev1.PodCondition, t corev1.PodConditionType, is bool, reason string, now time.Time) []corev1.PodCondition {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
	if !is {
		c.Status, c.Reason = corev1.ConditionFalse, reason
	}
	for i := range all {
		if all[i].Type != t {
			continue
		}
		if all[i].Status == c.Status {
			c.LastTransitionTime = all[i].LastTransitionTime
		}
		c.ObservedGeneration = all[i].ObservedGeneration
		all[i] = c
		return all
	}
	return append(all, c)
}
