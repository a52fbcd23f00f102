package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const (
	created  = runtimev1.ContainerState_CONTAINER_CREATED
	runs     = runtimev1.ContainerState_CONTAINER_RUNNING
	exited   = runtimev1.ContainerState_CONTAINER_EXITED
	lostSite = runtimev1.ContainerState_CONTAINER_UNKNOWN
)

// pod returns a pod with the containers a and b, and an init container if init is set.
func pod(policy corev1.RestartPolicy, init bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"},
		Spec: corev1.PodSpec{
			HostNetwork: true, RestartPolicy: policy,
			Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		},
	}
	if init {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	}
	return p
}

// deleted returns the pod with a grace period that ends in 30 s.
func deleted(p *corev1.Pod) *corev1.Pod {
	at := metav1.NewTime(now.Add(30 * time.Second))
	p.DeletionTimestamp = &at
	return p
}

func inPhase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

// run returns a run of a container in sandbox s1; if it ended, 5 s ago.
func run(name string, state runtimev1.ContainerState, exit int32) container {
	return container{id: name + "-0", name: name, sandbox: "s1", state: state, exitCode: exit, started: now.Add(-time.Minute), finished: now.Add(-5 * time.Second)}
}

func (c container) again(attempt uint32, quick int) container {
	c.id, c.attempt, c.quick = fmt.Sprintf("%s-%d", c.name, attempt), attempt, quick
	return c
}

func (c container) in(box string) container { c.sandbox = box; return c }

func (c container) long() container { c.started = now.Add(-time.Hour); return c }

func in(ready bool, runs ...container) seen {
	return seen{sandboxes: []sandbox{{id: "s1", ready: ready}}, containers: runs}
}

// say returns a step in one line.
func say(s step) string {
	text := string(s.do)
	if s.container != nil {
		text += fmt.Sprintf(" %s in %s, attempt %d", s.container.Name, s.id, s.attempt)
	} else if s.id != "" {
		text += " " + s.id
	}
	if s.do == makeBox {
		text += fmt.Sprintf(", attempt %d", s.attempt)
	}
	if s.after > 0 {
		text += fmt.Sprintf(" (%s)", s.after)
	}
	return text
}

func TestNextStep(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	mounted := volumes{ready: true, mounted: true}
	boxes := func(s seen, more ...sandbox) seen { s.sandboxes = append(more, s.sandboxes...); return s }
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		has  seen
		v    volumes
		want string
	}{
		{"volumes are awaited before anything is made", pod(always, false), seen{}, volumes{}, "rest"},
		{"then the sandbox comes", pod(always, false), seen{}, mounted, "make the sandbox, attempt 0"},
		{"then the containers in turn", pod(always, false), in(true), mounted, "start a container a in s1, attempt 0"},
		{"the next", pod(always, false), in(true, run("a", runs, 0)), mounted, "start a container b in s1, attempt 0"},
		{"all run", pod(always, false), in(true, run("a", runs, 0), run("b", runs, 0)), mounted, "rest"},
		{"volumes that went do not end containers", pod(always, false), in(true, run("a", runs, 0), run("b", runs, 0)), volumes{}, "rest"},
		{"but none is started without them", pod(always, false), in(true, run("a", runs, 0), run("b", exited, 0)), volumes{}, "rest"},
		{"one that was made and not started is made anew", pod(always, false), in(true, run("a", created, 0)), mounted, "remove a container a-0"},
		{"so is one whose state the runtime lost", pod(always, false), in(true, run("a", lostSite, 0)), mounted, "remove a container a-0"},
		{"what is not done is refused", &corev1.Pod{}, seen{}, mounted, "refuse the pod"},

		{"init containers come first", pod(always, true), in(true), mounted, "start a container i in s1, attempt 0"},
		{"and are awaited", pod(always, true), in(true, run("i", runs, 0)), mounted, "rest"},
		{"until they succeeded", pod(always, true), in(true, run("i", exited, 0)), mounted, "start a container a in s1, attempt 0"},
		{"one that failed runs again", pod(always, true), in(true, run("i", exited, 1)), mounted, "start a container i in s1, attempt 1"},
		{"after a pause", pod(always, true), in(true, run("i", exited, 1).again(1, 1)), mounted, "rest (5s)"},
		{"or the pod has failed", pod(never, true), in(true, run("i", exited, 1)), mounted, "rest"},
		{"also without its sandbox", pod(never, true), in(false, run("i", exited, 1)), mounted, "rest"},
		{"they run once a sandbox", pod(always, true), in(true, run("i", exited, 0), run("a", exited, 1), run("b", runs, 0)), mounted, "start a container a in s1, attempt 1"},
		{"and again in a new one", pod(always, true), boxes(in(false, run("i", exited, 0), run("a", exited, 1), run("b", exited, 1)), sandbox{id: "s2", attempt: 1, ready: true}), mounted, "start a container i in s2, attempt 1"},
		{"but not for what has ended for good", pod(never, true), in(false, run("i", exited, 0), run("a", exited, 1), run("b", exited, 0)), mounted, "rest"},

		{"a container that ended is started again", pod(always, false), in(true, run("a", exited, 0), run("b", runs, 0)), mounted, "start a container a in s1, attempt 1"},
		{"with a pause when it ended soon twice", pod(always, false), in(true, run("a", exited, 0).again(1, 1), run("b", runs, 0)), mounted, "rest (5s)"},
		{"that doubles", pod(always, false), in(true, run("a", exited, 0).again(2, 2), run("b", runs, 0)), mounted, "rest (15s)"},
		{"to five minutes", pod(always, false), in(true, run("a", exited, 0).again(90, 90), run("b", runs, 0)), mounted, "rest (4m55s)"},
		{"and is forgotten after a long run", pod(always, false), in(true, run("a", exited, 0).again(90, 90).long(), run("b", runs, 0)), mounted, "start a container a in s1, attempt 91"},
		{"the shortest pause is waited for", pod(always, false), in(true, run("a", exited, 0).again(2, 2), run("b", exited, 0).again(1, 1)), mounted, "rest (5s)"},
		{"OnFailure: not one that succeeded", pod(onFailure, false), in(true, run("a", exited, 0), run("b", runs, 0)), mounted, "rest"},
		{"OnFailure: one that failed", pod(onFailure, false), in(true, run("a", exited, 3), run("b", runs, 0)), mounted, "start a container a in s1, attempt 1"},
		{"Never: none", pod(never, false), in(true, run("a", exited, 3), run("b", runs, 0)), mounted, "rest"},

		{"a sandbox that ended has a successor", pod(always, false), in(false, run("a", exited, 137), run("b", exited, 137)), mounted, "make the sandbox, attempt 1"},
		{"in which all start again", pod(always, false), boxes(in(false, run("a", exited, 137), run("b", exited, 137)), sandbox{id: "s2", attempt: 1, ready: true}), mounted, "start a container a in s2, attempt 1"},
		{"but not when none is to run", pod(never, false), in(false, run("a", exited, 137), run("b", exited, 0)), mounted, "rest"},
		{"the last but one is kept", pod(always, false), in(true, run("a", runs, 0).again(1, 0), run("a", exited, 0), run("b", runs, 0)), mounted, "rest"},
		{"older runs go", pod(always, false), in(true, run("a", runs, 0).again(2, 0), run("a", exited, 0).again(1, 0), run("a", exited, 0), run("b", runs, 0)), mounted, "remove a container a-0"},
		{"and sandboxes without a run", pod(always, false), boxes(in(false, run("a", runs, 0).in("s2"), run("b", runs, 0).in("s2")), sandbox{id: "s2", attempt: 1, ready: true}), mounted, "remove the sandbox s1"},

		{"deleted: all is stopped in its grace period", deleted(pod(always, false)), in(true, run("a", runs, 0), run("b", exited, 0)), mounted, "stop (30s)"},
		{"also a sandbox without containers", deleted(pod(always, false)), in(true), mounted, "stop (30s)"},
		{"also one that was never started", deleted(pod(always, false)), in(false, run("a", created, 0)), mounted, "stop (30s)"},
		{"then its status says how they ended", deleted(inPhase(pod(always, false), corev1.PodRunning)), in(false, run("a", exited, 0), run("b", exited, 0)), mounted, "rest"},
		{"then the sandbox goes", deleted(inPhase(pod(always, false), corev1.PodSucceeded)), in(false, run("a", exited, 0), run("b", exited, 0)), mounted, "remove the sandbox s1"},
		{"then the volumes", deleted(inPhase(pod(always, false), corev1.PodSucceeded)), seen{}, mounted, "rest"},
		{"then the object", deleted(inPhase(pod(always, false), corev1.PodSucceeded)), seen{}, volumes{}, "delete the pod"},
		{"deleted before anything was made", deleted(pod(always, false)), seen{}, volumes{}, "rest"},
		{"and over", deleted(inPhase(pod(always, false), corev1.PodFailed)), seen{}, volumes{}, "delete the pod"},
		{"one that is over is not run again", inPhase(pod(always, false), corev1.PodFailed), seen{}, mounted, "rest"},
		{"and what is left of it goes", inPhase(pod(always, false), corev1.PodSucceeded), in(true, run("a", exited, 0)), mounted, "stop (10s)"},
		{"wholly", inPhase(pod(always, false), corev1.PodSucceeded), in(false, run("a", exited, 0)), mounted, "remove the sandbox s1"},
		{"what is not wanted ends", nil, in(true, run("a", runs, 0)), mounted, "stop (10s)"},
		{"and goes", nil, in(false, run("a", exited, 0)), mounted, "remove the sandbox s1"},
		{"until nothing is left", nil, seen{}, mounted, "forget"},
	} {
		if got := say(next(tc.pod, tc.has, tc.v, now)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestGracePeriod(t *testing.T) {
	sixty := int64(60)
	p := pod(corev1.RestartPolicyAlways, false)
	p.Spec.TerminationGracePeriodSeconds = &sixty
	if got := grace(p, now); got != time.Minute {
		t.Errorf("of a pod that is over: %s", got)
	}
	if got := grace(deleted(p), now.Add(time.Hour)); got != leastGrace {
		t.Errorf("that has passed: %s", got)
	}
}

// From every state next leads a deleted pod to the end of its object, and a wanted pod
// never has more than one running container of a name.
func TestEveryStateLeadsToAnEnd(t *testing.T) {
	states := []runtimev1.ContainerState{created, runs, exited, lostSite}
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		for _, init := range []bool{false, true} {
			for _, ready := range []bool{false, true} {
				for _, a := range states {
					for _, b := range states {
						for exit := range int32(2) {
							w := world{has: in(ready, run("a", a, exit), run("b", b, exit)), pod: pod(policy, init)}
							w.settle(t)
							w.pod = deleted(w.pod)
							w.settle(t)
							if !w.gone || len(w.has.sandboxes) > 0 || len(w.has.containers) > 0 {
								t.Fatalf("%s, init %t, ready %t, %s, %s, exit %d: ends with %+v", policy, init, ready, a, b, exit, w)
							}
						}
					}
				}
			}
		}
	}
}

// world is a runtime and an API server that carry out each request at once.
type world struct {
	pod  *corev1.Pod
	has  seen
	gone bool
}

func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 40 {
		v := volumes{ready: true, mounted: !over(w.pod.Status.Phase)}
		s := next(w.pod, w.has, v, now)
		if !over(w.pod.Status.Phase) {
			w.pod.Status = statusOf(w.pod, facts{has: w.has, volumes: v, now: now})
			if over(w.pod.Status.Phase) && w.pod.DeletionTimestamp != nil && w.has.lives() {
				t.Fatalf("over while it lives: %+v", w)
			}
			if over(w.pod.Status.Phase) {
				continue
			}
		}
		if s.do == idle || w.gone {
			return
		}
		w.do(t, s)
	}
	t.Fatalf("no end: %+v", w)
}

func (w *world) do(t *testing.T, s step) {
	t.Helper()
	switch s.do {
	case makeBox:
		if b, ok := w.has.box(); ok && b.ready {
			t.Fatal("a second sandbox")
		}
		w.has.sandboxes = append([]sandbox{{id: fmt.Sprintf("s%d", 1+s.attempt), attempt: s.attempt, ready: true}}, w.has.sandboxes...)
	case start:
		if c, ok := w.has.last(s.container.Name); ok && !c.exited() {
			t.Fatalf("a second container %s", s.container.Name)
		}
		c := run(s.container.Name, runs, 0).again(s.attempt, s.quick).in(s.id)
		if c.name == "i" {
			c.state = exited
		}
		w.has.containers = append([]container{c}, w.has.containers...)
	case stop:
		for i := range w.has.containers {
			w.has.containers[i].state = exited
		}
		for i := range w.has.sandboxes {
			w.has.sandboxes[i].ready = false
		}
	case dropRun:
		w.has.containers = without(w.has.containers, func(c container) bool { return c.id == s.id })
	case dropBox:
		w.has.sandboxes = without(w.has.sandboxes, func(b sandbox) bool { return b.id == s.id })
		w.has.containers = without(w.has.containers, func(c container) bool { return c.sandbox == s.id })
	case deleteNow:
		w.gone = true
	}
}

func without[T any](in []T, is func(T) bool) (out []T) {
	for _, x := range in {
		if !is(x) {
			out = append(out, x)
		}
	}
	return out
}
