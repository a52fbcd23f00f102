package made

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// makes is a driver that makes volumes with a volume_context.
type makes struct {
	clones
	context map[string]string
}

func (m makes) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	if req, ok := args.(*csi.CreateVolumeRequest); ok {
		reply.(*csi.CreateVolumeResponse).Volume = &csi.Volume{
			VolumeId: "h-" + req.GetName(), CapacityBytes: req.GetCapacityRange().GetRequiredBytes(), VolumeContext: m.context,
		}
		return nil
	}
	return m.clones.Invoke(ctx, method, args, reply, o...)
}

// A volume that no PersistentVolume can describe is not shown; its claim says why. The daemon goes on, since it would
// find the same volume at every start, and other claims get theirs.
func TestAVolumeThatCannotBeShownStopsNoOther(t *testing.T) {
	for what, tc := range map[string]struct {
		uid     types.UID
		params  map[string]string
		context map[string]string
		words   string
	}{
		"a claim's uid that is no name": {uid: "Data_1", words: "metadata.uid"},
		"a secret that is no name": {
			uid: "u1", words: "nodeStageSecretRef.name",
			params: map[string]string{
				"csi.storage.k8s.io/node-stage-secret-name": "My_Secret", "csi.storage.k8s.io/node-stage-secret-namespace": "default",
			},
		},
		"a driver's context with a key of the node": {
			uid: "u1", words: "volumeAttributes", context: map[string]string{"csi.storage.k8s.io/pod.name": "x"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.end()
				w.c.DriverUp(controller.Driver{Name: "bad", Conn: makes{context: tc.context}})
				w.c.DriverUp(controller.Driver{Name: "good", Conn: makes{}})
				w.put(testClass("bad", tc.params))
				w.put(testClass("good", nil))
				w.put(testClaim("a", tc.uid, "bad"))
				w.put(testClaim("b", "u2", "good"))
				if got := w.catalog.Get(source.Key{Kind: resolve.KindVolume, Name: "pvc-u2"}); got == nil {
					t.Error("the other claim's volume is not shown")
				}
				key := source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "a"}
				if got := w.catalog.Binding(key).Note; !strings.Contains(got, tc.words) {
					t.Errorf("its claim says %q, want a word about %s", got, tc.words)
				}
			})
		})
	}
}

// A claim that is listed again finds its data, also if its manifest has another uid by then: its volume is the claim's.
func TestAClaimThatComesBackHasItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		w.c.DriverUp(controller.Driver{Name: "d", Conn: makes{}})
		w.put(testClass("d", nil))
		w.put(testClaim("a", "u1", "d"))
		w.catalog.Delete("file", source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "a"})
		w.p.Changed(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "a"})
		synctest.Wait()
		again := testClaim("a", "u2", "d")
		w.put(again)
		if got := w.catalog.VolumeOf(again); got == nil || got.Name != "pvc-u1" {
			t.Errorf("its volume is %+v, want pvc-u1", got)
		}
	})
}

// After a restart during its CreateVolume, a claim does not get an existing volume as well: the driver may have made one.
func TestAClaimWhoseVolumeMayExistIsProvisioned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.c.DriverUp(controller.Driver{Name: "d", Conn: hangs{}})
		w.put(testClass("d", nil))
		w.put(testClaim("a", "u1", "d"))
		w.end()
		w = worldOf(t, w.journal)
		defer w.end()
		w.put(testClaim("a", "u1", "d")) // its class and its driver are away
		if !w.p.Provisions(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "a"}) {
			t.Error("the claim counts as one that asked no driver for a volume")
		}
	})
}

// hangs is a driver whose CreateVolume does not answer.
type hangs struct{ clones }

func (h hangs) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	if _, ok := args.(*csi.CreateVolumeRequest); ok {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.clones.Invoke(ctx, method, args, reply, o...)
}

// world is a catalog, a controller and the provider that connects them.
type world struct {
	t       *testing.T
	c       *controller.Controller
	catalog *source.Catalog
	p       *Provider
	journal *journal.Memory
	end     func()
}

// spoken says that all sources have delivered their objects.
func spoken() []string { return nil }

func newWorld(t *testing.T) world { return worldOf(t, journal.NewMemory()) }

// worldOf runs a world with a journal until its end is called. It must run in a synctest bubble.
func worldOf(t *testing.T, journal *journal.Memory) world {
	var none idle
	ctx, cancel := context.WithCancel(t.Context())
	w := world{
		t: t, c: controller.New(controller.Config{KV: journal, Usage: none}), journal: journal,
		catalog: source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none, Made: Name}),
		end:     func() { cancel(); synctest.Wait() },
	}
	w.p = New(Config{Catalog: w.catalog, Controller: w.c, Remote: "kube", Silent: spoken, Shown: func() {}, Logger: slog.New(slog.DiscardHandler)})
	for _, run := range []func(context.Context) error{w.c.Run, w.p.Run} {
		go func() {
			if err := run(ctx); err != nil || ctx.Err() == nil {
				t.Errorf("it ended: %v", err)
			}
		}()
	}
	return w
}

// put adds an object to the catalog.
func (w world) put(obj runtime.Object) {
	w.t.Helper()
	if err := w.catalog.Put("file", obj); err != nil {
		w.t.Fatal(err)
	}
	key, err := resolve.KeyOf(obj)
	if err != nil {
		w.t.Fatal(err)
	}
	w.p.Changed(key)
	synctest.Wait()
}

func testClass(driver string, params map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: resolve.KindClass}, ObjectMeta: metav1.ObjectMeta{Name: driver},
		Provisioner: driver, Parameters: params,
	}
}

func testClaim(name string, uid types.UID, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}
