package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seen has the sandboxes and containers of one pod in the runtime, the newest first.
type seen struct {
	sandboxes  []sandbox
	containers []container
}

type sandbox struct {
	id      string
	attempt uint32
	ready   bool
}

// container is one run of a container of the pod.
type container struct {
	id, name, sandbox string
	attempt           uint32
	// quick counts the runs before it that ended soon, one after the other.
	quick             int
	state             runtimev1.ContainerState
	exitCode          int32
	reason, message   string
	imageID           string
	started, finished time.Time
}

func (c container) running() bool {
	return c.state == runtimev1.ContainerState_CONTAINER_RUNNING
}
func (c container) exited() bool { return c.state == runtimev1.ContainerState_CONTAINER_EXITED }

// box returns the sandbox for new containers; it may have ended.
func (s seen) box() (sandbox, bool) {
	if len(s.sandboxes) == 0 {
		return sandbox{}, false
	}
	return s.sandboxes[0], true
}

// last returns the newest run of a container.
func (s seen) last(name string) (container, bool) {
	i := slices.IndexFunc(s.containers, func(c container) bool { return c.name == name })
	if i < 0 {
		return container{}, false
	}
	return s.containers[i], true
}

// lives reports whether a container or sandbox of the pod may run.
func (s seen) lives() bool {
	return slices.ContainsFunc(s.sandboxes, func(b sandbox) bool { return b.ready }) ||
		slices.ContainsFunc(s.containers, func(c container) bool { return !c.exited() })
}

// volumes is the state of a pod's volumes in csi-volmgr.
type volumes struct {
	ready   bool   // all volumes of the pod are mounted
	mounted bool   // a volume of the pod may be mounted
	waits   string // what ready waits for
}

// verb is the action of a step.
type verb string

const (
	idle       verb = "rest"               // nothing; look again after step.after, if that is set
	makeBox    verb = "make the sandbox"   //
	start      verb = "start a container"  // make it and start it
	dropRun    verb = "remove a container" // an old run of it
	stop       verb = "stop"               // all containers, then the sandboxes
	dropBox    verb = "remove the sandbox" // with all containers in it
	deleteNow  verb = "delete the pod"     // its object
	forgetThis verb = "forget"             // nothing is left, in the runtime and at the API server
	fail       verb = "refuse the pod"     // this agent does not run it
)

// step is the next action for a pod.
type step struct {
	do        verb
	id        string            // of the sandbox or container to remove
	container *corev1.Container // to start
	attempt   uint32            // of what is made
	quick     int
	after     time.Duration // how long to rest, or the grace period
	why       string
}

const (
	// firstBackOff and maxBackOff are the pauses before a container that keeps ending
	// is restarted; a run of longPeriod resets them.
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	longPeriod   = 10 * time.Minute
	// strayGrace is the grace period of containers whose pod's object is gone, and
	// leastGrace the least one of any (the kubelet's), also for a pod that is deleted by force.
	strayGrace = 10 * time.Second
	leastGrace = 2 * time.Second
	// reasonRefused is the reason of a pod that uses a field that this agent does not support.
	reasonRefused = "UnsupportedByAgent"
)

// next decides the next step for a pod; nil is a pod that the API server no longer has.
func next(pod *corev1.Pod, has seen, v volumes, now time.Time) step {
	if pod == nil || pod.DeletionTimestamp != nil || over(pod.Status.Phase) {
		return end(pod, has, v, now)
	}
	if why := refusal(pod); why != "" {
		return step{do: fail, why: why}
	}
	for _, c := range has.containers { // made and not started, or in a state that the runtime lost
		if !c.running() && !c.exited() {
			return step{do: dropRun, id: c.id}
		}
	}
	wanted, wait := due(pod, has, now)
	box, ok := has.box()
	switch {
	case wanted == nil:
		return garbage(has, wait)
	case !v.ready:
		return step{do: idle}
	case !ok:
		return step{do: makeBox}
	case !box.ready:
		return step{do: makeBox, attempt: box.attempt + 1}
	}
	s := step{do: start, container: wanted, id: box.id}
	if c, ok := has.last(wanted.Name); ok {
		s.attempt, s.quick = c.attempt+1, quickAfter(c)
	}
	return s
}

// due returns the container to start now, if any, and otherwise how long to wait for
// one; 0 means until something happens.
func due(pod *corev1.Pod, has seen, now time.Time) (*corev1.Container, time.Duration) {
	box, _ := has.box()
	if !initialized(pod, has) {
		for i := range pod.Spec.InitContainers {
			c, ok := has.last(pod.Spec.InitContainers[i].Name)
			switch {
			case ok && c.exited() && c.exitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
				return nil, 0 // the pod has failed
			case !ok || c.sandbox != box.id || !box.ready:
				return &pod.Spec.InitContainers[i], 0
			case c.running():
				return nil, 0
			case c.exitCode != 0:
				return later(&pod.Spec.InitContainers[i], backOff(c, now))
			}
		}
	}
	var wait time.Duration
	for i := range pod.Spec.Containers {
		c, ok := has.last(pod.Spec.Containers[i].Name)
		if !ok {
			return &pod.Spec.Containers[i], 0
		}
		if c.running() || !restarts(pod.Spec.RestartPolicy, c.exitCode) {
			continue
		}
		d := backOff(c, now)
		if d == 0 {
			return &pod.Spec.Containers[i], 0
		}
		if wait == 0 || d < wait {
			wait = d
		}
	}
	return nil, wait
}

func later(c *corev1.Container, d time.Duration) (*corev1.Container, time.Duration) {
	if d == 0 {
		return c, 0
	}
	return nil, d
}

// initialized reports whether the init containers need not run: they have run in the
// current sandbox, a later container has run in it, or no container will run.
func initialized(pod *corev1.Pod, has seen) bool {
	box, _ := has.box()
	done := true
	for _, c := range pod.Spec.Containers {
		r, ok := has.last(c.Name)
		if ok && r.sandbox == box.id {
			return true
		}
		done = done && ok && r.exited() && !restarts(pod.Spec.RestartPolicy, r.exitCode)
	}
	if done {
		return true
	}
	for _, c := range pod.Spec.InitContainers {
		if r, ok := has.last(c.Name); !ok || r.sandbox != box.id || !r.exited() || r.exitCode != 0 {
			return false
		}
	}
	return true
}

// restarts reports whether a container that ended must run again.
func restarts(p corev1.RestartPolicy, exitCode int32) bool {
	return p == corev1.RestartPolicyAlways || p == corev1.RestartPolicyOnFailure && exitCode != 0
}

// quickAfter returns how many runs in a row have ended soon, including c.
func quickAfter(c container) int {
	if c.finished.Sub(c.started) >= longPeriod {
		return 0
	}
	return c.quick + 1
}

// backOff returns the pause from now until c is started again: none after the first
// quick end, then longer and longer.
func backOff(c container, now time.Time) time.Duration {
	n := quickAfter(c)
	if n < 2 {
		return 0
	}
	pause := maxBackOff
	if n-2 < 5 { // 10 s, 20 s ... 160 s
		pause = min(maxBackOff, firstBackOff<<(n-2))
	}
	return max(0, c.finished.Add(pause).Sub(now))
}

// garbage returns a step that removes what no status needs: each container's runs
// before its last two, then older sandboxes without a run.
func garbage(has seen, wait time.Duration) step {
	runs := map[string]int{}
	used := map[string]bool{}
	for _, c := range has.containers {
		if runs[c.name]++; runs[c.name] > 2 {
			return step{do: dropRun, id: c.id}
		}
		used[c.sandbox] = true
	}
	for i, b := range has.sandboxes {
		if i > 0 && !used[b.id] {
			return step{do: dropBox, id: b.id}
		}
	}
	return step{do: idle, after: wait}
}

// end decides the step for a pod that must end, has ended, or is gone.
func end(pod *corev1.Pod, has seen, v volumes, now time.Time) step {
	switch {
	case has.lives():
		return step{do: stop, after: grace(pod, now)}
	case pod != nil && !over(pod.Status.Phase):
		return step{do: idle} // first its status says how the containers ended
	case len(has.sandboxes) > 0:
		return step{do: dropBox, id: has.sandboxes[0].id}
	case pod == nil:
		return step{do: forgetThis}
	case pod.DeletionTimestamp == nil || v.mounted:
		return step{do: idle} // until a user or a controller deletes it, or until csi-volmgr has unmounted its volumes
	}
	return step{do: deleteNow}
}

// grace returns how long the pod's containers have from now on to end.
func grace(pod *corev1.Pod, now time.Time) time.Duration {
	switch {
	case pod == nil:
		return strayGrace
	case pod.DeletionTimestamp != nil: // when the grace period ends
		return max(leastGrace, pod.DeletionTimestamp.Sub(now))
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return strayGrace
}

// over reports whether a phase is the last one.
func over(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }
