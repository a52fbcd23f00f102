package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// world is a provider on a catalog, with the wishes that the manager would receive.
type world struct {
	t        *testing.T
	server   *fakeapi.Server
	provider *kube.Provider
	catalog  *source.Catalog

	mu     sync.Mutex
	pods   map[state.PodUID]state.PodWant
	gone   []state.PodUID
	synced bool
	// missing has the pods' problems that say that an object does not exist, as opposed to not read yet.
	missing []string
}

func (w *world) SetPod(p state.PodWant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[p.Pod.UID] = p
	for _, v := range p.Volumes {
		if v.Problem != "" && !v.Unread {
			w.missing = append(w.missing, v.Problem)
		}
	}
}

func (w *world) RemovePod(u state.PodUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, u)
	w.gone = append(w.gone, u)
}
func (w *world) SourceSynced(string) { w.mu.Lock(); defer w.mu.Unlock(); w.synced = true }

// start runs a provider against a server that has the objects, in virtual time.
func start(t *testing.T, objects func(*fakeapi.Server)) *world {
	t.Helper()
	w, _ := startAs(t, objects, func(*kube.Config) {})
	return w
}

// startAs is start with a changed configuration; it also returns a function that stops the provider.
func startAs(t *testing.T, objects func(*fakeapi.Server), configure func(*kube.Config)) (_ *world, stop func()) {
	t.Helper()
	w := &world{t: t, server: fakeapi.New(), pods: map[state.PodUID]state.PodWant{}}
	objects(w.server)
	core, storage := w.server.Clients(kube.Transport)
	w.catalog = source.New(source.Config{
		Resolve: resolve.Config{
			Layout: state.Layout{Root: "/r"}, NodeName: "n1", ClusterAttach: true,
			Builtins: []state.DriverName{"kubernetes.io/configmap", "kubernetes.io/secret", "kubernetes.io/projected", "kubernetes.io/glusterfs"},
		},
		Sink: w, Remote: source.Kube,
		Demand: func(pod source.Key, keys []source.Key) { w.provider.Demand(pod, keys) },
	})
	c := kube.Config{Core: core, Storage: storage, Certificates: w.server.Certificates(kube.Transport), CertificatesBeta: w.server.CertificatesBeta(kube.Transport), NodeName: "n1", Catalog: w.catalog}
	configure(&c)
	w.provider = kube.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.provider.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	advance(time.Second)
	return w, stop
}

// volume returns the wish for the pod's only volume.
func (w *world) volume(uid state.PodUID) state.VolumeWant {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pods[uid]
	if !ok || len(p.Volumes) != 1 {
		w.t.Fatalf("pod %s: got %+v", uid, p)
	}
	return p.Volumes[0]
}

func (w *world) expect(uid state.PodUID, problem, hold string) {
	w.t.Helper()
	v := w.volume(uid)
	if !strings.Contains(v.Problem, problem) || (problem == "") != (v.Problem == "") || !strings.Contains(v.Hold, hold) || (hold == "") != (v.Hold == "") {
		w.t.Errorf("pod %s: got problem %q, hold %q; want %q, %q", uid, v.Problem, v.Hold, problem, hold)
	}
}

// asked returns the requests except watches, which the provider renews every few minutes.
func (w *world) asked() []string {
	return slices.DeleteFunc(w.server.Took(), func(r string) bool { return strings.HasPrefix(r, "watch ") })
}

func pod(name string, v corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}},
			Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		},
	}
}

func claimPod(name, claim string) *corev1.Pod {
	return pod(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

// claim puts a bound claim, its volume, the driver and the attachment.
func claim(s *fakeapi.Server, name string) {
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	s.Put(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	}, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name, UID: types.UID(name)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.test", VolumeHandle: "h-" + name}},
		},
	}, driver(false))
}

func driver(attach bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.test"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A pod with one claim: every request is by name or restricted to this node, and there are few.
//
// Items: A03.
func TestPodWithAClaimIsResolvedByReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) { claim(s, "a"); s.Put(claimPod("p", "a")) })
		w.expect("p", "", "")
		took := w.server.Took()
		slices.Sort(took)
		want := []string{
			"get persistentvolumes pv-a",
			"list csidrivers metadata.name=d.test", "list nodes metadata.name=n1",
			"list persistentvolumeclaims metadata.name=a", "list pods spec.nodeName=n1",
			"watch csidrivers metadata.name=d.test", "watch nodes metadata.name=n1",
			"watch persistentvolumeclaims metadata.name=a", "watch pods spec.nodeName=n1",
		}
		if !slices.Equal(took, want) {
			t.Errorf("got  %q\nwant %q", took, want)
		}
		advance(4 * time.Minute)
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("nothing happened, and still: %q", took)
		}
		for range 6 {
			advance(5 * time.Minute)
		}
		if asked := w.asked(); len(asked) > 0 {
			t.Errorf("nothing happened, and still: %q", asked)
		}
		w.server.Delete("pods", "default/p")
		synctest.Wait()
		if !slices.Equal(w.gone, []state.PodUID{"p"}) {
			t.Errorf("gone: %q", w.gone)
		}
		if len(w.catalog.Claims()) != 0 || len(w.catalog.Volumes()) != 0 {
			t.Error("what no pod needs is still kept")
		}
	})
}

// Until the provider knows whether a CSIDriver exists, it concludes nothing from its absence.
//
// Items: B01.
func TestWhatIsNotReadIsNotAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(r fakeapi.Request) *fakeapi.Answer {
			if r.Resource == "csidrivers" {
				return &fakeapi.Answer{Code: http.StatusInternalServerError}
			}
			return nil
		}
		w := start(t, func(s *fakeapi.Server) {
			s.Fail(refuse)
			s.Put(claimPod("p", "a"))
		})
		w.expect("p", "claim default/a: not found", "")
		claim(w.server, "a")
		advance(10 * time.Minute)
		w.expect("p", "CSIDriver d.test: not read: the API server failed (500", "")
		w.server.Fail(nil)
		advance(10 * time.Minute)
		w.expect("p", "", "")
		if len(w.provider.Findings()) > 0 {
			t.Errorf("problems: %v", w.provider.Findings())
		}
	})
}

// Whatever the server answers, the provider keeps what it knew, and it recovers when the server is back.
//
// Faults: A005, A222.
// Items: B08.
func TestFailuresRemoveNothing(t *testing.T) {
	for name, answer := range map[string]fakeapi.Answer{
		"401": {Code: http.StatusUnauthorized}, "403": {Code: http.StatusForbidden}, "404": {Code: http.StatusNotFound},
		"409": {Code: http.StatusConflict}, "410": {Code: http.StatusGone}, "429": {Code: http.StatusTooManyRequests, RetryAfter: "7"},
		"500": {Code: http.StatusInternalServerError}, "hangs": {Hang: true}, "refused": {Err: errors.New("connection refused")},
		// After these errors client-go returns a watch without events, and no error.
		"closed": {Err: io.EOF}, "cut off": {Err: io.ErrUnexpectedEOF}, "reset": {Err: syscall.ECONNRESET},
		"no route": {Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}}, "lost": {Err: errors.New("http2: client connection lost")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(s *fakeapi.Server) { claim(s, "a"); s.Put(claimPod("p", "a"), claimPod("q", "a")) })
				w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &answer })
				w.server.Compact()
				w.server.EndWatches()
				w.server.Delete("pods", "default/q")
				w.server.Took()
				advance(10 * time.Minute)
				if len(w.gone) > 0 {
					t.Errorf("removed: %q", w.gone)
				}
				w.expect("p", "", "")
				// Four objects are watched. After some failures, the provider asks for each at most every 30 s.
				if n := len(w.server.Took()); n > 4*(10*2+8)*2 {
					t.Errorf("%d requests in 10 minutes", n)
				}
				problems := fmt.Sprint(w.provider.Findings())
				if !strings.Contains(problems, "pods of node n1") || !strings.Contains(problems, "stays in use") {
					t.Errorf("problems: %s", problems)
				}
				w.server.Fail(nil)
				advance(10 * time.Minute)
				if !slices.Equal(w.gone, []state.PodUID{"q"}) || len(w.provider.Findings()) > 0 {
					t.Errorf("after it was back: gone %q, problems %v", w.gone, w.provider.Findings())
				}
			})
		})
	}
}

// A server that is unreachable at the start says nothing, so the source has not synced.
//
// Faults: A006.
func TestAbsentServerIsNoEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(claimPod("p", "a"))
			s.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Err: errors.New("no route to host")} })
		})
		advance(time.Hour)
		if w.synced {
			t.Fatal("the source has spoken")
		}
		w.server.Fail(nil)
		advance(10 * time.Minute)
		if !w.synced {
			t.Fatal("the source has not spoken")
		}
		w.expect("p", "", "")
	})
}

// The provider does not ask a server again before its Retry-After has passed.
func TestRetryAfterIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			s.Fail(func(fakeapi.Request) *fakeapi.Answer {
				return &fakeapi.Answer{Code: http.StatusTooManyRequests, RetryAfter: "200"}
			})
		})
		w.server.Took()
		advance(199 * time.Second)
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("asked before: %q", took)
		}
	})
}

// The provider replaces a watch that goes silent without an end, and learns what changed meanwhile.
func TestStaleWatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) { s.Endless(); claim(s, "a"); s.Put(claimPod("p", "a")) })
		w.server.Took()
		advance(12 * time.Minute)
		n := 0
		for _, r := range w.server.Took() {
			if r == "watch pods spec.nodeName=n1" {
				n++
			}
		}
		if n == 0 {
			t.Error("the watch of pods was never made anew")
		}
	})
}

// Once an attachment exists, the provider does not poll it: the node's volumesAttached shows changes.
func TestAttachmentIsReadWhenTheNodeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(driver(true), claimPod("p", "a"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		})
		w.expect("p", "", "not found")
		va := &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Fields(w.volume("p").Hold)[3]},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: "d.test", NodeName: "n1"},
		}
		va.Name = strings.TrimSuffix(va.Name, ":")
		w.server.Put(va)
		advance(10 * time.Minute)
		w.expect("p", "", "status.attached: found false")
		va.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/x"}}
		w.server.Put(va)
		w.server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d.test^h-a"}}}})
		synctest.Wait()
		w.expect("p", "", "")
		if got := w.volume("p").Spec.PublishContext["device"]; got != "/dev/x" {
			t.Errorf("publish context: got %q", got)
		}
		w.server.Took()
		advance(4 * time.Minute)
		if asked := w.asked(); len(asked) > 0 {
			t.Errorf("asked: %q", asked)
		}
		// The volume was given to another node while this one was cut off: this node does nothing more with it.
		w.server.Delete("volumeattachments", va.Name)
		w.server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		synctest.Wait()
		w.expect("p", "", "not found")
	})
}

// attached returns the attachment of the claim's volume.
func attached(volume string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: resolve.AttachmentKey("d.test", "h-"+volume, "n1").Name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "d.test", NodeName: "n1"},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

// attaching returns this node, which lists the claims' volumes as attached.
func attaching(volumes ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, v := range volumes {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName("kubernetes.io/csi/d.test^h-" + v)})
	}
	return n
}

// A change of one attachment makes the provider read no other one: a pod's cost does not grow with their number.
// After a list, which may have missed a change, it reads all that the Node lists.
func TestOnlyTheAttachmentThatChangedIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			for _, v := range []string{"a", "b", "c"} {
				claim(s, v)
				s.Put(claimPod("p-"+v, v), attached(v))
			}
			s.Put(driver(true), attaching("a", "b"))
		})
		w.server.Took()
		w.server.Put(attaching("a", "b", "c"))
		synctest.Wait()
		if asked, want := w.asked(), []string{"get volumeattachments " + attached("c").Name}; !slices.Equal(asked, want) {
			t.Errorf("c came: asked %q, want %q", asked, want)
		}
		w.server.Put(attaching("b", "c"))
		synctest.Wait()
		if asked, want := w.asked(), []string{"get volumeattachments " + attached("a").Name}; !slices.Equal(asked, want) {
			t.Errorf("a left: asked %q, want %q", asked, want)
		}
		w.server.Delete("pods", "default/p-a")
		synctest.Wait()
		w.server.Compact()
		w.server.EndWatches()
		advance(time.Minute)
		if got := strings.Count(strings.Join(w.asked(), "\n"), "get volumeattachments"); got != 2 {
			t.Errorf("after a list: %d attachments were read, want both", got)
		}
	})
}

// A proxy without a route to the API server answers 404 for every object. That is no answer about the object, which
// stays known.
//
// Faults: A005.
func TestANotFoundOfAProxyRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(claimPod("p", "a"))
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				if r.Resource == "persistentvolumeclaims" && r.Verb != "get" {
					return &fakeapi.Answer{Code: http.StatusForbidden} // so that the claim is read by gets
				}
				return nil
			})
		})
		w.expect("p", "", "")
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer {
			return &fakeapi.Answer{Code: http.StatusNotFound, Body: "<html>404 page not found</html>"}
		})
		advance(2 * kube.DefaultRefresh)
		w.expect("p", "", "")
		if p := fmt.Sprint(w.provider.Findings()); !strings.Contains(p, "default/a another server answers in the API server's place (404)") {
			t.Errorf("problems: %s", p)
		}
	})
}

// An identity that may not watch claims gets them instead, and still notices that a volume grew.
func TestClaimsThatMayNotBeWatchedAreGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(claimPod("p", "a"))
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				if r.Resource == "persistentvolumeclaims" && r.Verb != "get" {
					return &fakeapi.Answer{Code: http.StatusForbidden}
				}
				return nil
			})
		})
		w.expect("p", "", "")
		var pv corev1.PersistentVolume
		w.server.Get("persistentvolumes", "pv-a", &pv)
		pv.Spec.Capacity["storage"] = resource.MustParse("2Gi")
		w.server.Put(&pv)
		var pvc corev1.PersistentVolumeClaim
		w.server.Get("persistentvolumeclaims", "default/a", &pvc)
		pvc.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
		w.server.Put(&pvc)
		w.server.Took()
		advance(2 * kube.DefaultRefresh)
		if got := w.volume("p").SizeBytes; got != 2<<30 {
			t.Errorf("size: got %d", got)
		}
		w.server.Took()
		advance(2 * kube.DefaultRefresh)
		for _, r := range w.asked() {
			if r != "get persistentvolumeclaims default/a" {
				t.Errorf("nothing happened, and still: %s", r)
			}
		}
		if len(w.provider.Findings()) > 0 {
			t.Errorf("problems: %v", w.provider.Findings())
		}
	})
}

// The node authorizer may know a pod, and so its objects, later than the node. A refusal that ends is a debug line, and one
// that lasts a warning, once; any other failure is a warning at once.
func TestARefusalIsAWarningOnlyIfItLasts(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int
		lasts time.Duration
		want  []string
	}{
		"refused at first": {http.StatusForbidden, 20 * time.Second, []string{"DEBUG"}},
		"refused for long": {http.StatusForbidden, time.Hour, []string{"DEBUG", "WARN"}},
		"failing":          {http.StatusInternalServerError, time.Second, []string{"WARN"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lines bytes.Buffer
			began := time.Now()
			w, stop := startAs(t, func(s *fakeapi.Server) {
				s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}},
					pod("p", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}}))
				s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
					if r.Resource == "configmaps" && time.Since(began) < tc.lasts {
						return &fakeapi.Answer{Code: tc.code}
					}
					return nil
				})
			}, func(c *kube.Config) {
				c.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			advance(tc.lasts + 2*time.Minute)
			w.expect("p", "", "")
			stop()
			var got []string
			for line := range strings.Lines(lines.String()) {
				if strings.Contains(line, "API server not read") && strings.Contains(line, "configMap default/m") {
					_, level, _ := strings.Cut(line, "level=")
					level, _, _ = strings.Cut(level, " ")
					got = append(got, level)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: logged at %v, want %v\n%s", name, got, tc.want, lines.String())
			}
		})
	}
}

// The provider reads an immutable secret once and does not watch it; a new one of the same name gets its own value.
//
// Items: L14.
func TestImmutableSecretIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := true
		w := start(t, func(s *fakeapi.Server) {
			s.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Immutable: &yes, Data: map[string][]byte{"k": []byte("v")}},
				pod("p", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
		})
		w.expect("p", "", "")
		if took := w.server.Took(); slices.Contains(took, "watch secrets metadata.name=s") || !slices.Contains(took, "list secrets metadata.name=s") {
			t.Errorf("got %q", took)
		}
	})
}

// A rotated configMap reaches the pod. A recreated one is accepted although the first was immutable.
func TestConfigMapRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := func(value string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": value}}
		}
		w := start(t, func(s *fakeapi.Server) {
			s.Put(conf("1"), pod("p", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}))
		})
		first := w.volume("p").Revision
		w.server.Put(conf("2"))
		synctest.Wait()
		if w.volume("p").Revision == first {
			t.Error("the second content did not arrive")
		}
		w.server.Delete("configmaps", "default/c")
		synctest.Wait()
		w.expect("p", "configMap default/c: not found", "")
	})
}

// The provider leaves out a mirror pod, which shows a static pod: it makes none under the API server's UID.
func TestMirrorPodsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirror := claimPod("p", "a")
		mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		w := start(t, func(s *fakeapi.Server) { s.Put(mirror) })
		if len(w.pods) > 0 || !w.synced {
			t.Errorf("got %v, synced %v", w.pods, w.synced)
		}
	})
}

// A pod of the same name with another UID is another pod; the first is gone.
//
// Items: B20.
func TestPodOfTheSameNameIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) { claim(s, "a"); s.Put(claimPod("p", "a")) })
		again := claimPod("p", "a")
		again.UID = "p2"
		w.server.Delete("pods", "default/p")
		w.server.Put(again)
		synctest.Wait()
		if !slices.Equal(w.gone, []state.PodUID{"p"}) {
			t.Errorf("gone: %q", w.gone)
		}
		w.expect("p2", "", "")
	})
}
