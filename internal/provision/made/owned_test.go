package made

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// idle is a node without pods and volumes.
type idle struct{}

func (idle) SetPod(state.PodWant)                                 {}
func (idle) RemovePod(state.PodUID)                               {}
func (idle) SourceSynced(string)                                  {}
func (idle) Wanted(controller.Key) string                         { return "" }
func (idle) InUse(state.VolumeID, string) string                  { return "" }
func (idle) Listed(controller.Key, state.VolumeID, string) string { return "" }

// clones is a driver that declares that it makes and clones volumes, and makes none.
type clones struct{ grpc.ClientConnInterface }

func (clones) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	switch args.(type) {
	case *csi.GetPluginCapabilitiesRequest:
		reply.(*csi.GetPluginCapabilitiesResponse).Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	case *csi.ControllerGetCapabilitiesRequest:
		for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		} {
			r := reply.(*csi.ControllerGetCapabilitiesResponse)
			r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc},
			}})
		}
	case *csi.NodeGetCapabilitiesRequest:
	default:
		return status.Error(codes.Unavailable, "it makes none")
	}
	return nil
}

// A manifest's claim asks for a clone of another claim. If that turns out to be the cluster's, the clone says so and
// stops waiting for a volume of the node's own; and the reverse.
//
// Sidecars: SP-42.
func TestACloneOfTheClustersClaimIsTheClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none idle
		c := controller.New(controller.Config{KV: journal.NewMemory(), Usage: none})
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		go func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
		p := New(Config{Catalog: catalog, Controller: c, Remote: "kube", Silent: spoken, Logger: slog.New(slog.DiscardHandler)})
		claim := func(name, of string) *corev1.PersistentVolumeClaim {
			obj := &corev1.PersistentVolumeClaim{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr("c"),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}
			if of != "" {
				obj.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: resolve.KindClaim, Name: of}
			}
			return obj
		}
		put := func(provider string, obj runtime.Object) {
			if err := catalog.Put(provider, obj); err != nil {
				t.Fatal(err)
			}
			key, err := resolve.KeyOf(obj)
			if err != nil {
				t.Fatal(err)
			}
			p.Changed(key)
			synctest.Wait()
		}
		reason := func() string {
			s, _ := c.Claim(controller.Key{Namespace: "default", Name: "copy"})
			return s.Reason
		}
		c.DriverUp(controller.Driver{Name: "d", Conn: clones{}})
		put("file", &storagev1.StorageClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: resolve.KindClass}, ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "d",
		})
		put("file", claim("copy", "data"))
		if got := reason(); !strings.Contains(got, "has no volume") {
			t.Errorf("of a claim that is not there: %q", got)
		}
		put("kube", claim("data", ""))
		if got := reason(); !strings.Contains(got, "claim default/data is of the cluster") || !strings.Contains(got, "kubectl apply -n default") {
			t.Errorf("of the cluster's claim: %q", got)
		}
		catalog.Delete("kube", source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "data"})
		p.Changed(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "data"})
		synctest.Wait()
		if got := reason(); !strings.Contains(got, "has no volume") {
			t.Errorf("of a claim that is gone: %q", got)
		}
	})
}
