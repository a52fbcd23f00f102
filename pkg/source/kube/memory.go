package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// KV keeps values durably; both journals of pkg/state do.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

const (
	// bucket has the objects that were known last, by kind/namespace/name, as JSON.
	bucket = "kube"
	// writeDelay is how long a change may wait to be written along with others:
	// what is lost by a crash is known again as soon as the server answers.
	writeDelay = time.Second
	// maxKept bounds one object (bytes); what is larger is not kept.
	maxKept = 256 << 10
)

// memory is what was known last, for a start without the API server. Secrets,
// configMaps, tokens and attachments are not in it, nor what a container's
// environment and command line say.
type memory struct {
	kv     KV // nil for none
	logger *slog.Logger
	poke   chan struct{} // capacity 1: there is something to write

	mu    sync.Mutex // guards what follows
	kept  map[string][]byte
	dirty map[string][]byte // nil values are to be removed
}

func newMemory(kv KV, logger *slog.Logger) *memory {
	return &memory{
		kv: kv, logger: logger, poke: make(chan struct{}, 1), kept: map[string][]byte{},
		dirty: map[string][]byte{},
	}
}

// kindKept returns an empty object of a kind that is remembered, nil for others.
func kindKept(kind string) runtime.Object {
	switch kind {
	case resolve.KindPod:
		return &corev1.Pod{}
	case resolve.KindClaim:
		return &corev1.PersistentVolumeClaim{}
	case resolve.KindVolume:
		return &corev1.PersistentVolume{}
	case resolve.KindCSIDriver:
		return &storagev1.CSIDriver{}
	case resolve.KindNode:
		return &resolve.Node{}
	}
	return nil
}

// load returns the objects that were known last. What cannot be read is left out.
func (m *memory) load(ctx context.Context) (objects []runtime.Object) {
	if m.kv == nil {
		return nil
	}
	values, err := m.kv.LoadBucket(ctx, bucket)
	if err != nil {
		m.logger.Error("what the API server said last cannot be read", "err", err)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(values.Unreadable)) {
		m.logger.Error("an object that the API server had cannot be read and is forgotten", "object", key, "err",
			values.Unreadable[key])
		m.dirty[key] = nil
	}
	for _, key := range slices.Sorted(maps.Keys(values.Sound)) {
		kind, _, _ := strings.Cut(key, "/")
		obj := kindKept(kind)
		if obj == nil || json.Unmarshal(values.Sound[key], obj) != nil {
			m.logger.Error("an object that the API server had cannot be read and is forgotten", "object", key)
			m.dirty[key] = nil
			continue
		}
		m.kept[key] = values.Sound[key]
		objects = append(objects, obj)
	}
	return objects
}

// note takes over what the catalog is told.
func (m *memory) note(u source.Update) {
	if m.kv == nil {
		return
	}
	m.mu.Lock()
	for _, key := range slices.Concat(u.Delete, u.Remote.Forget) {
		m.set(storedKey(key), nil)
	}
	for _, obj := range u.Put {
		key, err := resolve.KeyOf(obj)
		if err != nil || kindKept(key.Kind) == nil {
			continue
		}
		value, err := json.Marshal(reduced(obj))
		if err != nil || len(value) > maxKept {
			value = nil
		}
		m.set(storedKey(key), value)
	}
	changed := len(m.dirty) > 0
	m.mu.Unlock()
	if changed {
		select {
		case m.poke <- struct{}{}:
		default:
		}
	}
}

// set notes one value, nil for none; m.mu is held.
func (m *memory) set(key string, value []byte) {
	if was, had := m.kept[key]; had == (value != nil) && bytes.Equal(was, value) {
		return
	}
	m.dirty[key] = value
	if value == nil {
		delete(m.kept, key)
	} else {
		m.kept[key] = value
	}
}

// run writes what was noted, until ctx ends and all is written.
func (m *memory) run(ctx context.Context) {
	for {
		select {
		case <-m.poke:
			_ = sleep(ctx, writeDelay) // a shorter one where ctx ends
		case <-ctx.Done():
		}
		m.mu.Lock()
		changes := m.dirty
		m.dirty = map[string][]byte{}
		m.mu.Unlock()
		if len(changes) > 0 {
			m.write(context.WithoutCancel(ctx), changes)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (m *memory) write(ctx context.Context, changes map[string][]byte) {
	err := m.kv.CommitBucket(ctx, bucket, changes)
	if err == nil {
		return
	}
	m.logger.Warn("what the API server says cannot be kept for a start without it", "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, value := range changes {
		if _, newer := m.dirty[key]; !newer {
			m.dirty[key] = value // goes along with the next change
		}
	}
}

func storedKey(k source.Key) string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// reduced returns what resolving needs of an object, and nothing that its owner
// would not expect on a node's disk.
func reduced(obj runtime.Object) runtime.Object {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels, Annotations: pod.Annotations,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: *pod.Spec.DeepCopy(), Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	out.Annotations = maps.Clone(pod.Annotations)
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation) // which repeats all that is left out
	strip := func(c *corev1.Container) {
		c.Command, c.Args, c.EnvFrom, c.Lifecycle = nil, nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return !inSubPath(c, e.Name) })
	}
	for i := range out.Spec.InitContainers {
		strip(&out.Spec.InitContainers[i])
	}
	for i := range out.Spec.Containers {
		strip(&out.Spec.Containers[i])
	}
	for i := range out.Spec.EphemeralContainers {
		c := corev1.Container(out.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		strip(&c)
		out.Spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	return out
}

// inSubPath reports whether a path within a volume is made with the variable.
func inSubPath(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return strings.Contains(m.SubPathExpr, "$("+name+")")
	})
}

// remember tells the catalog what was known last, until the server says more, and
// returns the pods of it. The source has not spoken by that: nothing is removed.
func (p *Provider) remember(ctx context.Context) map[source.Key]*corev1.Pod {
	pods := map[source.Key]*corev1.Pod{}
	objects := p.memory.load(ctx)
	if len(objects) == 0 {
		return pods
	}
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			continue
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			pods[key] = pod
		} else if m, ok := obj.(metav1.Object); ok && key.Kind != resolve.KindNode {
			p.uids[key] = m.GetUID()
		}
	}
	p.apply(source.Update{Put: objects})
	p.forgetUnneeded()
	p.problem(outage.Finding{
		What: whatRemembered, Follows: true,
		Text: fmt.Sprintf("not asked yet since the start: its %d pods, "+
			"and their claims, volumes and drivers, are as they were known last; "+
			"secrets, configMaps and attachments are not kept, and nothing is removed", len(pods)),
	})
	return pods
}

// whatRemembered is what the problem is about that not all is of this day.
const whatRemembered = "the API server"

// forgetUnneeded drops what no remembered pod needs, which a crash can leave.
func (p *Provider) forgetUnneeded() {
	p.mu.Lock()
	var forget []source.Key
	needed := p.needed()
	for key := range p.uids {
		if !needed[key] {
			forget = append(forget, key)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(forget, source.Key.Compare)
	p.apply(source.Update{Remote: source.Remote{Forget: forget}})
}
