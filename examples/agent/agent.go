package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// glanceEvery is how often the runtime is asked for changes: not every runtime
	// announces containers that end.
	glanceEvery = time.Second
	// firstRetry and maxRetry are the first and longest pause after a failed step.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
	byUID      = "uid"
)

// volumeNode is the part of csi-volmgr that an agent needs.
type volumeNode struct{ *node.Node }

// of returns the state of a pod's volumes.
func (v volumeNode) of(uid types.UID) volumes {
	m, id := v.Manager(), state.PodUID(uid)
	p, ok := m.Pod(id)
	out := volumes{
		ready: ok && p.Listed && p.Ready, mounted: m.HasPossiblyMountedVolumesForPod(id),
		waits: "csi-volmgr does not know the pod yet",
	}
	if !ok {
		return out
	}
	var waits []string
	for _, vol := range p.Volumes {
		if !vol.Mounted {
			waits = append(waits, vol.Line(time.Now()))
		}
	}
	out.waits = strings.Join(waits, "; ")
	return out
}

// agent runs the pods of one node. Each pod has a goroutine of its own, which does
// one step after the other (next) until nothing is left of the pod.
type agent struct {
	node, ip   string
	logs       string
	client     kubernetes.Interface
	containers *containerRuntime
	volumes    volumeNode
	events     record.EventRecorder
	pods       cache.SharedIndexInformer

	mu      sync.Mutex // guards the fields below
	workers map[types.UID]*worker
	closed  bool // no new worker begins
	running sync.WaitGroup
}

// worker is the goroutine of one pod.
type worker struct {
	uid     types.UID
	poke    chan struct{} // capacity 1: the pod has changed
	trouble error         // why the last step failed
	retry   time.Duration
}

// errMounts means that a container cannot start because its mounts cannot be made.
var errMounts = errors.New("mounts of the container")

func newAgent(client kubernetes.Interface, containers *containerRuntime, v volumeNode, o options) *agent {
	mine := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", o.name).String()
	})
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &agent{
		node: o.name, ip: o.ip, logs: o.logs,
		client: client, containers: containers, volumes: v, workers: map[types.UID]*worker{},
		events: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "agent", Host: o.name}),
		pods: cache.NewSharedIndexInformer(mine, &corev1.Pod{}, 0, cache.Indexers{byUID: func(o any) ([]string, error) {
			return []string{string(o.(*corev1.Pod).UID)}, nil
		}}),
	}
}

// run runs pods until ctx ends. It does nothing until it knows all pods of the node,
// because it stops containers whose pods are not among them.
func (a *agent) run(ctx context.Context) error {
	defer func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		a.running.Wait()
	}()
	go a.pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced) {
		return ctx.Err()
	}
	if _, err := a.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.poke(ctx, o.(*corev1.Pod).UID) },
		UpdateFunc: func(was, is any) { a.poke(ctx, was.(*corev1.Pod).UID); a.poke(ctx, is.(*corev1.Pod).UID) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			a.poke(ctx, o.(*corev1.Pod).UID)
		},
	}); err != nil {
		return err
	}
	feed := a.volumes.Manager().FollowPods()
	defer feed.Close()
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	before := map[types.UID]string{}
	for {
		select {
		case <-feed.Changed():
			changed, gone := feed.Take()
			for _, p := range changed {
				a.poke(ctx, types.UID(p.Pod.UID))
			}
			for _, p := range gone {
				a.poke(ctx, types.UID(p.UID))
			}
		case <-tick.C:
			before = a.glance(ctx, before)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// glance wakes the pods whose sandboxes or containers have changed.
func (a *agent) glance(ctx context.Context, before map[types.UID]string) map[types.UID]string {
	now, err := a.containers.glance(ctx)
	if err != nil {
		slog.Warn("ask the container runtime", "err", err)
		return before
	}
	for uid := range before {
		if _, ok := now[uid]; !ok {
			a.poke(ctx, uid)
		}
	}
	for uid, text := range now {
		if before[uid] != text {
			a.poke(ctx, uid)
		}
	}
	return now
}

// poke makes the worker of a pod look again, and starts one if the pod has none.
func (a *agent) poke(ctx context.Context, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.workers[uid]
	if !ok {
		if a.closed {
			return
		}
		w = &worker{uid: uid, poke: make(chan struct{}, 1)}
		a.workers[uid] = w
		a.running.Go(func() { a.work(ctx, w) })
	}
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// work does a pod's steps until nothing is left of it.
func (a *agent) work(ctx context.Context, w *worker) {
	for {
		select {
		case <-w.poke:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			asksOther := a.since(w.uid)
			s, err := a.turn(ctx, w)
			if s.do == forgetThis && a.leave(w) {
				return
			}
			if w.note(err) || s.do == idle || s.do == deleteNow || s.do == forgetThis {
				after := cmp.Or(w.retry, s.after)
				ends := anything
				if w.retry > 0 {
					ends = asksOther
				}
				if after == 0 || !a.waited(ctx, w, after, ends) {
					break
				}
			}
		}
	}
}

// note records the error of a step, and reports whether the step failed.
func (w *worker) note(err error) bool {
	if err == nil {
		w.trouble, w.retry = nil, 0
		return false
	}
	w.trouble, w.retry = err, min(maxRetry, max(firstRetry, 2*w.retry))
	return true
}

// leave ends a worker unless it was woken meanwhile.
func (a *agent) leave(w *worker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(w.poke) > 0 {
		return false
	}
	delete(a.workers, w.uid)
	return true
}

func (a *agent) pod(uid types.UID) (*corev1.Pod, bool) {
	found, err := a.pods.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(found) == 0 {
		return nil, false
	}
	return found[0].(*corev1.Pod), true
}

// turn looks at a pod, writes its status to the API server, and does the next step.
func (a *agent) turn(ctx context.Context, w *worker) (step, error) {
	pod, _ := a.pod(w.uid)
	has, err := a.containers.look(ctx, w.uid)
	if err != nil {
		return step{}, err
	}
	f := facts{
		has: has, volumes: a.volumes.of(w.uid), trouble: w.trouble,
		runtime: a.containers.name, ip: a.ip, now: time.Now(),
	}
	s := next(pod, has, f.volumes, f.now)
	if s.do == fail {
		f.refused = s.why
	}
	var told error
	if pod != nil && !over(pod.Status.Phase) {
		told = a.tell(ctx, pod, f)
	}
	if s.do == fail {
		return step{do: idle}, told
	}
	if err := a.do(ctx, pod, has, s); err != nil {
		slog.Warn("a step failed", "pod", w.uid, "step", s.do, "err", err)
		if pod != nil {
			a.events.Eventf(pod, corev1.EventTypeWarning, "Failed", "%s: %v", s.do, err)
		}
		return s, fmt.Errorf("%s: %w", s.do, err)
	}
	return s, told // containers start even if the API server is away
}

// tell writes the pod's status if it has changed.
func (a *agent) tell(ctx context.Context, pod *corev1.Pod, f facts) error {
	now := pod.DeepCopy()
	now.Status = statusOf(pod, f)
	if equality.Semantic.DeepEqual(pod.Status, now.Status) {
		return nil
	}
	_, err := a.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch brings a newer object, or its deletion
	case err != nil:
		return fmt.Errorf("write the status: %w", err)
	case f.refused != "":
		a.events.Event(pod, corev1.EventTypeWarning, reasonRefused, f.refused)
	}
	return nil
}

// do does one step.
func (a *agent) do(ctx context.Context, pod *corev1.Pod, has seen, s step) error {
	switch s.do {
	case makeBox:
		return a.containers.makeSandbox(ctx, a.maker(pod).sandbox(s.attempt))
	case start:
		return a.start(ctx, pod, has, s)
	case stop:
		if pod != nil {
			a.events.Eventf(pod, corev1.EventTypeNormal, "Killing", "stopping containers in %s", s.after.Round(time.Second))
		}
		return a.containers.stop(ctx, has, s.after)
	case dropBox:
		return a.containers.removeSandbox(ctx, s.id)
	case dropRun:
		return a.containers.removeContainer(ctx, s.id)
	case deleteNow:
		zero := int64(0)
		err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another pod has its name
			return nil
		}
		return err
	}
	return nil
}

// start starts a container. A mount may have vanished meanwhile, so csi-volmgr
// first checks the mounts again, and then returns the container's mounts.
func (a *agent) start(ctx context.Context, pod *corev1.Pod, has seen, s step) error {
	if err := a.volumes.Manager().Verify(ctx, state.PodUID(pod.UID)); err != nil {
		return fmt.Errorf("%w: %w", errMounts, err)
	}
	image, err := a.containers.image(ctx, s.container)
	if err != nil {
		return err
	}
	options, err := a.containers.mountOptions(ctx)
	if err != nil {
		return err
	}
	this := node.Container{Namespace: pod.Namespace, Pod: pod.Name, Name: s.container.Name, MountOptions: options}
	given, err := a.volumes.ContainerMounts(ctx, this)
	if err != nil {
		return fmt.Errorf("%w: %w", errMounts, err)
	}
	box, _ := has.box()
	m := a.maker(pod)
	if err := a.containers.run(ctx, box.id, m.sandbox(box.attempt), m.container(s, image, given)); err != nil {
		return err
	}
	a.events.Eventf(pod, corev1.EventTypeNormal, "Started", "started container %s", s.container.Name)
	return nil
}

func (a *agent) maker(pod *corev1.Pod) maker {
	groups := a.volumes.Manager().GetExtraSupplementalGroupsForPod(state.PodUID(pod.UID))
	return maker{pod: pod, node: a.node, ip: a.ip, logs: a.logs, volumeGroups: groups}
}
