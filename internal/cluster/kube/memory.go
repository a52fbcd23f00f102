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

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// KV stores values durably; both journals of pkg/state implement it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

const (
	// bucket contains the last known objects as JSON, under kind/namespace/name.
	bucket = "kube"
	// writeDelay is how long a change may wait for others to be written with it. What a crash loses
	// is known again when the server answers.
	writeDelay = time.Second
	// maxKept is the largest value (in bytes) that is stored.
	maxKept = 256 << 10
)

// memory stores the last known objects for a start without the API server. It omits secrets,
// configMaps, tokens, attachments, and the environments and command lines of containers.
type memory struct {
	kv     KV // may be nil
	logger *slog.Logger
	poke   chan struct{} // capacity 1: there is something to write

	mu    sync.Mutex // guards the fields below
	kept  map[string][]byte
	dirty map[string][]byte // a nil value deletes the key
}

func newMemory(kv KV, logger *slog.Logger) *memory {
	return &memory{
		kv: kv, logger: logger, poke: make(chan struct{}, 1), kept: map[string][]byte{},
		dirty: map[string][]byte{},
	}
}

// newKept returns an empty object of a kind that is stored, and nil for other kinds.
func newKept(kind string) runtime.Object {
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

// load returns the stored objects. It drops those that cannot be read.
func (m *memory) load(ctx context.Context) (objects []runtime.Object) {
	if m.kv == nil {
		return nil
	}
	values, err := m.kv.LoadBucket(ctx, bucket)
	if err != nil {
		m.logger.Error("cannot read the stored objects of the API server", "err", err)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(values.Unreadable)) {
		m.logger.Error("stored object of the API server is unreadable and was dropped", "object", key, "err",
			values.Unreadable[key])
		m.dirty[key] = nil
	}
	for _, key := range slices.Sorted(maps.Keys(values.Sound)) {
		kind, _, _ := strings.Cut(key, "/")
		obj := newKept(kind)
		if obj == nil || json.Unmarshal(values.Sound[key], obj) != nil {
			m.logger.Error("stored object of the API server is unreadable and was dropped", "object", key)
			m.dirty[key] = nil
			continue
		}
		m.kept[key] = values.Sound[key]
		objects = append(objects, obj)
	}
	return objects
}

// note records the changes of an update of the catalog.
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
		if err != nil || newKept(key.Kind) == nil {
			continue
		}
		value, err := json.Marshal(redacted(obj))
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

// set changes one value; nil deletes it. The caller holds m.mu.
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

// run writes the changes until ctx ends and everything is written.
func (m *memory) run(ctx context.Context) {
	for {
		select {
		case <-m.poke:
			_ = sleep(ctx, writeDelay) // ends early if ctx ends
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
	m.logger.Warn("cannot store the objects of the API server for a start without it", "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, value := range changes {
		if _, newer := m.dirty[key]; !newer {
			m.dirty[key] = value // written with the next change
		}
	}
}

func storedKey(k source.Key) string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// redacted returns what resolving needs of an object, without data that its owner would not expect
// on a node's disk.
func redacted(obj runtime.Object) runtime.Object {
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
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation) // it repeats everything that is left out
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

// inSubPath reports whether a subPathExpr of the container uses the variable.
func inSubPath(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return strings.Contains(m.SubPathExpr, "$("+name+")")
	})
}

// restore delivers the stored objects to the catalog, to be used until the server answers, and
// returns the pods among them. The source has not spoken yet, so nothing is removed.
func (p *Provider) restore(ctx context.Context) map[source.Key]*corev1.Pod {
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
	p.setFinding(outage.Finding{
		What: whatRestored, Follows: true,
		Text: fmt.Sprintf("no answer since the start: its %d pods, "+
			"and their claims, volumes and drivers, are the last known ones; "+
			"secrets, configMaps and attachments are not stored, and nothing is removed", len(pods)),
	})
	return pods
}

// whatRestored names the finding that the objects are the stored ones.
const whatRestored = "the API server"

// forgetUnneeded drops the objects that no restored pod needs. A crash can leave some.
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
