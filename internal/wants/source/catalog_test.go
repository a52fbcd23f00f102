package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sink keeps the wishes that it receives.
type sink struct {
	mu     sync.Mutex
	pods   map[state.PodUID]state.PodWant
	events []string
}

func (s *sink) SetPod(w state.PodWant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[w.Pod.UID] = w
	s.events = append(s.events, "set "+w.Pod.Name)
}

func (s *sink) RemovePod(uid state.PodUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, "remove "+s.pods[uid].Pod.Name)
	delete(s.pods, uid)
}

func (s *sink) SourceSynced(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, "synced "+name)
}

// took returns what the sink has received since the last call.
func (s *sink) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events
	s.events = nil
	return e
}

// problem returns the problem of the only volume of the pod with that UID.
func (s *sink) problem(t *testing.T, uid state.PodUID) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.pods[uid]
	if !ok || len(w.Volumes) != 1 {
		t.Fatalf("pod %s: got %+v", uid, w)
	}
	return w.Volumes[0].Problem
}

func start() (*source.Catalog, *sink) {
	s := &sink{pods: map[state.PodUID]state.PodWant{}}
	return source.New(source.Config{
		Resolve: resolve.Config{
			Layout: state.Layout{Root: "/r"}, NodeName: "n", Builtins: []state.DriverName{kind.EmptyDir, kind.ConfigMap},
		},
		Sink: s,
	}), s
}

func decode(t testing.TB, text string) []runtime.Object {
	t.Helper()
	objects, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func put(t testing.TB, c *source.Catalog, provider, text string) {
	t.Helper()
	if err := c.Apply(provider, source.Update{Put: decode(t, text)}); err != nil {
		t.Fatal(err)
	}
}

// pod is a pod whose uid is its name and which uses one claim.
func pod(name, claim string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, uid: %s}, spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]}}\n", name, name, claim)
}

func claim(name, volume string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {volumeName: %q}}\n", name, volume)
}

func volume(name, claim string) string {
	ref := ""
	if claim != "" {
		ref = "claimRef: {namespace: default, name: " + claim + "}, "
	}
	return fmt.Sprintf("---\n{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {%scsi: {driver: d, volumeHandle: %s}}}\n", name, ref, name)
}

func key(kind, name string) source.Key {
	k := source.Key{Kind: kind, Name: name}
	if resolve.Namespaced(kind) {
		k.Namespace = "default"
	}
	return k
}

func want(t *testing.T, s *sink, events ...string) {
	t.Helper()
	if got := s.took(); !slices.Equal(got, events) {
		t.Errorf("the sink was told %q, want %q", got, events)
	}
}

// Items: B01, A05.
func TestChangeResolvesOnlyThePodsItTouches(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca")+pod("b", "cb")+pod("b2", "cb")+claim("ca", "va"))
	want(t, s, "set a", "set b", "set b2")
	put(t, c, "file", claim("cb", ""))
	want(t, s, "set b", "set b2")
	put(t, c, "file", volume("va", ""))
	want(t, s, "set a")
	put(t, c, "file", volume("vb", "cb")) // found by its claimRef
	want(t, s, "set b", "set b2")
	if p := s.problem(t, "b"); p != "" {
		t.Errorf("problem: %s", p)
	}
	put(t, c, "file", volume("vb", "ca")) // leaves one claim, names another
	want(t, s, "set b", "set b2")
	if p := s.problem(t, "b"); !strings.HasPrefix(p, "claim default/cb: not bound yet: no volume without a class") {
		t.Errorf("problem: %s", p)
	}
	put(t, c, "file", claim("cx", "va")) // another claim of the same volume
	want(t, s, "set a")
	if p := s.problem(t, "a"); !strings.Contains(p, "default/ca, default/cx") {
		t.Errorf("problem: %s", p)
	}
	c.Delete("file", key("PersistentVolumeClaim", "cx"))
	want(t, s, "set a")
	put(t, c, "file", "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: d}, spec: {podInfoOnMount: true}}")
	want(t, s, "set a")
	put(t, c, "file", "{apiVersion: v1, kind: Secret, metadata: {name: x}}")
	want(t, s)
}

func TestSameObjectAgainTellsNothing(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca"))
	s.took()
	put(t, c, "file", pod("a", "ca"))
	c.Delete("file", key("Pod", "nobody"))
	want(t, s)
}

func TestUpdateResolvesEachPodOnce(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca")+claim("ca", "va")+volume("va", "ca"))
	want(t, s, "set a")
	if p := s.problem(t, "a"); p != "" {
		t.Errorf("problem: %s", p)
	}
}

func TestPodLeavesWhenNoProviderHasIt(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca"))
	put(t, c, "api", pod("a", "cb"))
	s.took()
	c.Delete("file", key("Pod", "a"))
	want(t, s, "set a")
	c.Delete("api", key("Pod", "a"))
	want(t, s, "remove a")
}

// Items: B20.
func TestPodOfAnotherUIDIsAnotherPod(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca"))
	s.took()
	next := decode(t, pod("a", "ca"))[0].(*corev1.Pod)
	next.UID = "a2"
	if err := c.Put("file", next); err != nil {
		t.Fatal(err)
	}
	want(t, s, "remove a", "set a")
	if _, ok := s.pods["a2"]; !ok || len(s.pods) != 1 {
		t.Errorf("got %+v", s.pods)
	}
}

func TestFileHoldsOverAPIOverOthers(t *testing.T) {
	for _, order := range [][]string{{"file", "api", "kube", "controller"}, {"kube", "controller", "api", "file"}} {
		c, _ := start()
		for _, p := range order {
			put(t, c, p, volume("v", p))
		}
		for _, holds := range []string{"file", "api", "controller", "kube"} {
			if got := c.Volumes()[0].Spec.ClaimRef.Name; got != holds {
				t.Errorf("order %v: got the object of %s, want that of %s", order, got, holds)
			}
			problems := c.Problems()
			for _, p := range problems {
				if p.Where != "volume v" || p.Text != "source "+holds+" has it too, and its object is used" || p.Provider == holds {
					t.Errorf("got %+v", p)
				}
			}
			if holds == "file" && len(problems) != 3 || holds == "kube" && len(problems) != 0 {
				t.Errorf("got %+v", problems)
			}
			c.Delete(holds, key("PersistentVolume", "v"))
		}
		if len(c.Volumes()) != 0 {
			t.Error("the volume is still there")
		}
	}
}

func TestObjectThatIsNotAsItShouldBeChangesNothing(t *testing.T) {
	c, s := start()
	put(t, c, "kube", pod("a", "ca"))
	s.took()
	bad := decode(t, pod("a", "other"))[0].(*corev1.Pod)
	bad.UID = types.UID("../../etc")
	err := c.Apply("kube", source.Update{Put: append([]runtime.Object{bad, &corev1.Node{}}, decode(t, pod("b", "cb"))...)})
	if err == nil || !strings.Contains(err.Error(), `pod default/a: metadata.uid: found "../../etc"`) || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("got %v", err)
	}
	want(t, s, "set b")
	if got := c.Pods()[0].UID; got != "a" {
		t.Errorf("got uid %s", got)
	}
}

func TestClaimNoteReachesThePod(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca")+claim("ca", ""))
	s.took()
	c.SetClaimNote(key("PersistentVolumeClaim", "ca"), "CreateVolume: no space", state.Cause{})
	want(t, s, "set a")
	if p := s.problem(t, "a"); p != "claim default/ca: not bound yet: CreateVolume: no space" {
		t.Errorf("got %s", p)
	}
	c.SetClaimNote(key("PersistentVolumeClaim", "ca"), "CreateVolume: no space", state.Cause{})
	want(t, s)
	c.SetClaimNote(key("PersistentVolumeClaim", "ca"), "", state.Cause{})
	want(t, s, "set a")
}

// Items: E18.
func TestSourceSyncedPassesThroughInOrder(t *testing.T) {
	c, s := start()
	put(t, c, "file", pod("a", "ca"))
	c.Synced("file")
	c.Synced("api")
	want(t, s, "set a", "synced file", "synced api")
}

// TestSubscriberMayCallBack: the catalog calls a subscriber without holding a lock, after it has sent the pods.
func TestSubscriberMayCallBack(t *testing.T) {
	c, s := start()
	var heard []string
	c.Subscribe(func(k source.Key) {
		heard = append(heard, k.String())
		if k.Kind == resolve.KindClaim {
			c.SetClaimNote(k, "seen", state.Cause{})
			put(t, c, "controller", volume("v", k.Name))
		}
	})
	put(t, c, "file", pod("a", "ca")+claim("ca", ""))
	if w := []string{"claim default/ca", "volume v", "pod default/a"}; !slices.Equal(heard, w) && !slices.Equal(heard, []string{"claim default/ca", "pod default/a", "volume v"}) {
		t.Errorf("heard %q, want %q", heard, w)
	}
	if p := s.problem(t, "a"); p != "" {
		t.Errorf("problem: %s", p)
	}
}

func TestSecret(t *testing.T) {
	c, _ := start()
	put(t, c, "file", "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: hunter2}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: raw}, data: {k: /w==}}")
	ctx := t.Context()
	got, err := c.Secret(ctx, state.SecretRef{Namespace: "default", Name: "s"})
	if err != nil || got["a"] != "hunter2" || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := c.Secret(ctx, state.SecretRef{Namespace: "default", Name: "x"}); !errors.Is(err, source.ErrNotFound) || err.Error() != "secret default/x: not found" {
		t.Errorf("got %v", err)
	}
	if _, err := c.Secret(ctx, state.SecretRef{Namespace: "default", Name: "raw"}); !errors.Is(err, source.ErrNotText) || err.Error() != "secret default/raw: data[k]: not UTF-8 text" {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.ConfigMap(ended, "default", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLookups(t *testing.T) {
	c, _ := start()
	put(t, c, "file", claim("b", "")+claim("a", "")+volume("w", "")+volume("v", "")+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}\n")
	class := func(name, annotations string) string {
		return fmt.Sprintf("---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s, %s}, provisioner: d}\n", name, annotations)
	}
	isDefault := "annotations: {storageclass.kubernetes.io/is-default-class: 'true'}"
	put(t, c, "file", class("z", isDefault)+class("y", isDefault)+class("x", ""))
	if l := c.Claims(); len(l) != 2 || l[0].Name != "a" || l[1].Name != "b" {
		t.Errorf("got %v", l)
	}
	if l := c.Volumes(); len(l) != 2 || l[0].Name != "v" {
		t.Errorf("got %v", l)
	}
	if l := c.Classes(); len(l) != 3 || l[0].Name != "x" {
		t.Errorf("got %v", l)
	}
	if m, err := c.ConfigMap(t.Context(), "default", "c"); err != nil || m.Data["a"] != "b" {
		t.Errorf("got %v, %v", m, err)
	}
	a := c.Claims()[0].DeepCopy()
	if got := c.ClassOf(a); got == nil || got.Name != "y" {
		t.Errorf("default class: got %v", got)
	}
	put(t, c, "file", class("z", isDefault+", creationTimestamp: 2026-01-01T00:00:00Z"))
	if got := c.ClassOf(a); got == nil || got.Name != "z" {
		t.Errorf("newer default class: got %v", got)
	}
	for name, found := range map[string]bool{"x": true, "": false, "none": false} {
		a.Spec.StorageClassName = &name
		if got := c.ClassOf(a); (got != nil) != found {
			t.Errorf("class %q: got %v", name, got)
		}
	}
}

// TestConcurrentUse is for the race detector; the last change must win.
func TestConcurrentUse(t *testing.T) {
	c, s := start()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("p%d", i)
			for range 20 {
				put(t, c, "file", pod(name, "shared"))
				put(t, c, "api", claim("shared", "v"))
				c.SetClaimNote(key("PersistentVolumeClaim", "shared"), name, state.Cause{})
				_ = c.Claims()
				_, _ = c.Secret(t.Context(), state.SecretRef{})
				c.Delete("api", key("PersistentVolumeClaim", "shared"))
			}
		})
	}
	all.Wait()
	if len(s.pods) != 8 {
		t.Fatalf("got %d pods", len(s.pods))
	}
	for uid := range s.pods {
		if p := s.problem(t, uid); p != "claim default/shared: not found" {
			t.Errorf("pod %s: %s", uid, p)
		}
	}
}

// BenchmarkChangeAmongMany: a change costs the same with 100 pods and with 10,000.
func BenchmarkChangeAmongMany(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, _ := start()
			var objects []runtime.Object
			for i := range n {
				objects = append(objects, decode(b, pod(fmt.Sprintf("p%d", i), fmt.Sprintf("c%d", i)))...)
			}
			if err := c.Apply("file", source.Update{Put: objects}); err != nil {
				b.Fatal(err)
			}
			there, gone := decode(b, claim("c7", "v"))[0], key("PersistentVolumeClaim", "c7")
			for b.Loop() {
				if err := c.Put("file", there); err != nil {
					b.Fatal(err)
				}
				c.Delete("file", gone)
			}
		})
	}
}

// L14: the catalog rejects a source's change of an immutable object; after a deletion it accepts a new one.
func TestImmutableObjectIsNotReplaced(t *testing.T) {
	c, _ := start()
	const text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, immutable: true, data: {a: '1'}}"
	put(t, c, "file", text)
	changed := decode(t, strings.Replace(text, "'1'", "'2'", 1))
	if err := c.Apply("file", source.Update{Put: changed}); err == nil || !strings.Contains(err.Error(), "configMap default/conf: data: ") {
		t.Errorf("got %v", err)
	}
	if got, err := c.ConfigMap(t.Context(), "default", "conf"); err != nil || got.Data["a"] != "1" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := c.Apply("file", source.Update{Put: changed, Delete: []source.Key{{Kind: resolve.KindConfigMap, Namespace: "default", Name: "conf"}}}); err != nil {
		t.Error(err)
	}
	if got, err := c.ConfigMap(t.Context(), "default", "conf"); err != nil || got.Data["a"] != "2" {
		t.Errorf("got %v, %v", got, err)
	}
}

// A VolumeAttachment with any name attaches the volume that its spec names, and the node follows it. One for another
// driver, node or volume has no effect. Until a matching one appears, a driver that requires attachment does not get
// the volume.
//
// Faults: A156.
func TestAttachmentsAreMatchedByTheirSpec(t *testing.T) {
	c, s := start()
	put(t, c, "api", pod("web", "data"))
	put(t, c, "api", claim("data", "vol"))
	put(t, c, "api", volume("vol", "data"))
	put(t, c, "api", "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: d}, spec: {attachRequired: true}}")
	attachment := func(name, attacher, node, volume, attached string) string {
		return "{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: " + name + "}, " +
			"spec: {attacher: " + attacher + ", nodeName: " + node + ", source: {persistentVolumeName: " + volume + "}}, " +
			"status: {attached: " + attached + ", attachmentMetadata: {device: /dev/" + name + "}}}"
	}
	check := func(step, device string) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range s.pods {
			v := w.Volumes[0]
			if v.Problem != "" || v.Spec.PublishContext["device"] != device || (v.Unattached == "") != (device != "") {
				t.Errorf("%s: problem %q, context %v, unattached %q; want device %q", step, v.Problem, v.Spec.PublishContext, v.Unattached, device)
			}
			if device == "" && !strings.Contains(v.Unattached, "attacher d, nodeName n and persistentVolumeName vol") {
				t.Errorf("%s: %q does not say what would be right", step, v.Unattached)
			}
		}
	}
	check("none", "")
	put(t, c, "api", attachment("a", "other", "n", "vol", "true"))
	put(t, c, "api", attachment("b", "d", "other", "vol", "true"))
	put(t, c, "api", attachment("c", "d", "n", "other", "true"))
	check("of others", "")
	put(t, c, "api", attachment("aa", "d", "n", "vol", "false"))
	check("not attached yet", "")
	put(t, c, "api", attachment("mine", "d", "n", "vol", "true"))
	check("attached", "/dev/mine")
	put(t, c, "api", attachment("aa", "d", "n", "vol", "true"))
	check("two: the first by name", "/dev/aa")
	put(t, c, "api", attachment(resolve.AttachmentKey("d", "vol", "n").Name, "d", "n", "vol", "true"))
	check("and one of the attach-detach controller's name", "/dev/"+resolve.AttachmentKey("d", "vol", "n").Name)
	for _, name := range []string{"mine", "aa", resolve.AttachmentKey("d", "vol", "n").Name} {
		c.Delete("api", source.Key{Kind: resolve.KindVolumeAttachment, Name: name})
	}
	check("deleted", "")
	put(t, c, "api", "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: d}, spec: {attachRequired: false}}")
	for _, w := range s.pods {
		if w.Volumes[0].Unattached != "" {
			t.Errorf("a driver that needs no attachment: %q", w.Volumes[0].Unattached)
		}
	}
}

// A released volume names a claim by a name that a new claim has now. It is not the new claim's:
// a snapshot of the claim would have the data of the old one.
func TestAClaimsVolumeIsNotThatOfAnEarlierClaimOfTheName(t *testing.T) {
	const claim = `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, uid: new}, spec: {volumeName: %q}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-a}, spec: {accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: c, uid: old}, csi: {driver: d, volumeHandle: a}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-b}, spec: {accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: b}%s}}
`
	for name, tc := range map[string]struct{ names, ref, want string }{
		"the claim names it": {"pv-b", "", "pv-b"},
		"it names the claim": {"", ", claimRef: {namespace: default, name: c, uid: new}", "pv-b"},
		"each the other":     {"pv-b", ", claimRef: {namespace: default, name: c}", "pv-b"},
		"it has none":        {"", "", ""},
		"names the old one":  {"pv-a", "", ""},
	} {
		c, _ := start()
		put(t, c, "file", fmt.Sprintf(claim, tc.names, tc.ref))
		var got string
		if pv := c.VolumeOf(c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "c"}).(*corev1.PersistentVolumeClaim)); pv != nil {
			got = pv.Name
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A PersistentVolume shares a claim's volume if it has the driver and the handle, and is neither the claim's own nor
// reserved for it.
func TestAVolumeThatIsListedTwice(t *testing.T) {
	const volume = `{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce]%s}}`
	claim := source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "c"}
	for what, tc := range map[string]struct {
		name, spec string
		shares     bool
	}{
		"another name":               {"second", ", csi: {driver: d, volumeHandle: a}", true},
		"for another claim":          {"second", ", csi: {driver: d, volumeHandle: a}, claimRef: {namespace: shop, name: c}", true},
		"for the claim":              {"second", ", csi: {driver: d, volumeHandle: a}, claimRef: {namespace: default, name: c}", false},
		"the claim's own":            {"pv-a", ", csi: {driver: d, volumeHandle: a}", false},
		"another handle":             {"second", ", csi: {driver: d, volumeHandle: b}", false},
		"another driver":             {"second", ", csi: {driver: e, volumeHandle: a}", false},
		"of another kind of storage": {"second", ", nfs: {server: d, path: /a}", false},
	} {
		c, _ := start()
		put(t, c, "file", fmt.Sprintf(volume, tc.name, tc.spec))
		if got, shares := c.Sharing(state.SharedID("d", "a"), "pv-a", claim); shares != tc.shares || shares && got.Name != tc.name {
			t.Errorf("%s: %v, %v", what, got, shares)
		}
	}
}
