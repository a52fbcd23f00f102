package sim

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// claimants are the claims of two authors. A pod of the same name uses each.
var claimants = []string{"bank/data", "bank/logs", "evil/data", "evil/thief"}

// pv is a PersistentVolume that a person lists.
type pv struct {
	size   int64
	handle string
	ref    string // the claim that its claimRef names, or ""
}

// marker is the data in a volume: whose it is, and which volume that claim had asked for by name.
type marker struct{ claim, named string }

// held is what a pod has mounted. recorded: the manager's records have it.
type held struct {
	pv, handle string
	recorded   bool
	life       int
}

// authors is the truth about two authors who share the PersistentVolumes of a node.
type authors struct {
	pvs map[string]pv
	// asks has each listed claim, with the volume that it names or "". using has the claims that a
	// listed pod uses.
	asks  map[string]string
	using map[string]bool
	// markers are those at the storage, by handle; spare are those of the journal's spare copy.
	markers, spare map[string]marker

	mu   sync.Mutex      // guards the field below; the innermost lock
	pods map[string]held // by claim
}

func newAuthors() *authors {
	return &authors{
		pvs: map[string]pv{}, asks: map[string]string{}, using: map[string]bool{}, markers: map[string]marker{}, spare: map[string]marker{},
		pods: map[string]held{},
	}
}

// front is the part of one life of the daemon that reads objects: the real catalog, resolution and
// binder. What it says of a pod is mounted a moment later.
type front struct {
	w       *world
	l       *life
	catalog *source.Catalog
	binder  *binding.Binder

	mu   sync.Mutex // guards the field below
	told map[string]state.PodWant
}

// newFront begins a life's front; mu is held.
func newFront(w *world, l *life, logger *slog.Logger) *front {
	f := &front{w: w, l: l, told: map[string]state.PodWant{}}
	f.catalog = source.New(source.Config{
		Resolve: resolve.Config{Layout: layout, NodeName: "n", RevisionKey: []byte("k")}, Sink: f, Logger: logger,
	})
	f.binder = binding.New(binding.Config{
		Catalog: f.catalog, Journal: claims{w, l}, Remote: source.Kube, Made: func(source.Key) bool { return false }, Volumes: f.volumes,
		Silent: f.silent, Logger: logger,
	})
	w.authors.spare = maps.Clone(w.authors.markers)
	return f
}

// silent answers like the program.
func (f *front) silent() (names []string) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(sources), func(s string) bool { return f.l.spoken[s] })
}

// volumes answers like the manager, from its records.
func (f *front) volumes() (all []manager.VolumeStatus) {
	a := f.w.authors
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, claim := range sortedKeys(a.pods) {
		if h := a.pods[claim]; h.recorded {
			fact := state.Fact{Phase: state.Present}
			all = append(all, manager.VolumeStatus{Volume: state.Volume{
				ID: state.SharedID("d", h.handle), Spec: &state.Spec{Name: h.pv, Claim: claim}, Mounts: map[state.PodUID]state.Mount{state.PodUID(claim): {Fact: fact}},
			}})
		}
	}
	return all
}

// SetPod implements source.Sink.
func (f *front) SetPod(p state.PodWant) {
	claim := p.Pod.Namespace + "/" + p.Pod.Name
	f.mu.Lock()
	f.told[claim] = p
	f.mu.Unlock()
	f.later(claim)
}

// RemovePod implements source.Sink.
func (f *front) RemovePod(uid state.PodUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for claim, p := range f.told {
		if p.Pod.UID == uid {
			delete(f.told, claim)
			f.later(claim)
		}
	}
}

// SourceSynced implements source.Sink.
func (f *front) SourceSynced(string) {}

// later brings a pod's mount to what the front says of it.
func (f *front) later(claim string) {
	time.AfterFunc(time.Duration(1+f.w.dice("author", claim, f.l.number)%50)*time.Millisecond, func() {
		f.w.mu.Lock()
		defer f.w.mu.Unlock()
		if f.l.dead || len(f.l.spoken) < len(sources) {
			return
		}
		f.mu.Lock()
		p, wanted := f.told[claim]
		f.mu.Unlock()
		f.w.bring(claim, p, wanted)
	})
}

// bring mounts or unmounts; mu is held.
func (w *world) bring(claim string, p state.PodWant, wanted bool) {
	a := w.authors
	a.mu.Lock()
	defer a.mu.Unlock()
	if !wanted {
		delete(a.pods, claim)
		return
	}
	for _, v := range p.Volumes {
		if v.Problem != "" || v.ID == "" {
			continue // it keeps what it has
		}
		if a.pods[claim].handle != v.Spec.Handle {
			w.judge.sees(claim, v.Spec.Handle)
			w.count.groups["mounted for an author"]++
		}
		if a.pods[claim].handle != v.Spec.Handle || !a.pods[claim].recorded {
			a.pods[claim] = held{v.Spec.Name, v.Spec.Handle, true, w.lives}
		}
	}
}

// sees checks that no claim's pod sees another claim's marker, and lets it write its own; mu is
// held.
func (j *judge) sees(claim, handle string) {
	a := j.w.authors
	if of := a.markers[handle]; of.claim != "" && of.claim != claim {
		j.w.breach("authors: the pod of claim %s sees the data of claim %s in %s", claim, of.claim, handle)
	}
	a.markers[handle] = marker{claim, a.asks[claim]}
}

// speak lists everything of a source to the catalog; mu is held.
func (f *front) speak(from string) {
	a := f.w.authors
	defer f.binder.Wake()
	defer func() {
		for _, claim := range claimants {
			f.later(claim)
		}
	}()
	if from != "api" {
		return
	}
	for _, name := range sortedKeys(a.pvs) {
		f.put(a.pvs[name].object(name))
	}
	for _, claim := range sortedKeys(a.asks) {
		f.put(claimObject(claim, a.asks[claim]))
	}
	for _, claim := range sortedKeys(a.using) {
		f.put(podObject(claim))
	}
}

// put lists an object to the catalog.
func (f *front) put(o runtime.Object) {
	if err := f.catalog.Put("api", o); err != nil {
		panic(err)
	}
}

func (v pv) object(name string) runtime.Object {
	o := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.size, resource.BinarySI)}, AccessModes: oneNode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: v.handle}},
		},
	}
	if namespace, claim, has := strings.Cut(v.ref, "/"); has {
		o.Spec.ClaimRef = &corev1.ObjectReference{Kind: resolve.KindClaim, Namespace: namespace, Name: claim}
	}
	return o
}

// oneNode is the access mode of the authors' volumes.
var oneNode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}

func claimObject(claim, named string) runtime.Object {
	o := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metaOf(claim)}
	o.Spec.VolumeName, o.Spec.AccessModes = named, oneNode
	o.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(1, resource.BinarySI)}
	return o
}

func podObject(claim string) runtime.Object {
	o := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod}, ObjectMeta: metaOf(claim)}
	o.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.Name},
	}}}
	o.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
	return o
}

// metaOf returns the metadata of a claim and of its pod: the UID follows from the name.
func metaOf(claim string) metav1.ObjectMeta {
	namespace, name, _ := strings.Cut(claim, "/")
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name)}
}

func keyFor(kind, claim string) source.Key {
	namespace, name, _ := strings.Cut(claim, "/")
	return source.Key{Kind: kind, Namespace: namespace, Name: name}
}

// author executes a step of an author or of the operator; mu is held.
func (w *world) author(verb, name, arg string) {
	a, f := w.authors, w.life.front
	heard := !w.life.dead && w.life.spoken["api"]
	switch verb {
	case "pv": // SIZE,HANDLE,REF
		p := strings.Split(arg, ",")
		was := a.pvs[name]
		w.unlist(name)
		a.pvs[name] = pv{int64(len(p[0])), cmp.Or(p[1], name), p[2]}
		w.given(name, was)
		if heard {
			f.put(a.pvs[name].object(name))
		}
	case "unpv":
		w.unlist(name)
		if heard {
			f.catalog.Delete("api", source.Key{Kind: resolve.KindVolume, Name: name})
		}
	case "ask":
		a.asks[name] = arg
		if heard {
			f.put(claimObject(name, arg))
		}
	case "unask", "withdraw": // withdraw: its source lists it no more, and no person deleted it
		if _, listed := a.asks[name]; a.using[name] || !heard || !listed {
			return
		}
		delete(a.asks, name)
		f.catalog.Delete("api", keyFor(resolve.KindClaim, name))
		w.orphans()
		if verb == "unask" {
			go func() { _, _ = f.binder.Release(context.Background(), keyFor(resolve.KindClaim, name)) }()
		}
	case "use":
		if _, listed := a.asks[name]; !listed {
			return
		}
		a.using[name] = true
		if heard {
			f.put(podObject(name))
		}
	case "unuse":
		delete(a.using, name)
		if heard {
			f.catalog.Delete("api", keyFor(resolve.KindPod, name))
		}
	case "give": // volume release
		if heard {
			w.give(name)
		}
	}
}
