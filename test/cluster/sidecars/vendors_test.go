// Package sidecars has a test that shows what Kubernetes' sidecars read in the classes of vendors.
package sidecars

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	provisioner "github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/utils"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	controller "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/yaml"
)

var write = flag.Bool("write", false, "write vendors.requests anew")

// vendors is where the classes and the requests are that the project's own test compares.
const vendors = "../../faults/testdata"

// vendor has the parameters of a driver's classes.
type vendor struct {
	Driver       string
	Class        map[string]string
	MountOptions []string
	Annotations  map[string]string
	Snapshot     map[string]string
}

// recorder keeps the request of CreateVolume.
type recorder struct {
	csi.UnimplementedControllerServer
	created *csi.CreateVolumeRequest
}

func (r *recorder) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	r.created = req
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "v", CapacityBytes: req.GetCapacityRange().GetRequiredBytes()}}, nil
}

// vendors.requests has the requests to which external-provisioner and external-snapshotter read the classes.
func TestVendorsRequests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(vendors, "vendors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []vendor
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		t.Fatal(err)
	}
	rec := &recorder{}
	conn := serve(t, rec)
	var out strings.Builder
	for _, v := range all {
		fmt.Fprintf(&out, "%s\n", v.Driver)
		v.volume(t, &out, rec, conn)
		v.snapshot(t, &out)
	}
	name := filepath.Join(vendors, "vendors.requests")
	if *write {
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if had, err := os.ReadFile(name); err != nil || string(had) != out.String() {
		t.Errorf("%s is not what the sidecars read (%v); run make vendors WRITE=1; they read:\n%s", name, err, &out)
	}
}

func serve(t *testing.T, rec *recorder) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	csi.RegisterControllerServer(s, rec)
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// claim returns the claim of a vendor's class, whose name is the driver's with dashes.
func (v vendor) claim() *v1.PersistentVolumeClaim {
	name := strings.ReplaceAll(v.Driver, ".", "-")
	annotations := map[string]string{"volume.kubernetes.io/storage-provisioner": v.Driver}
	for key, value := range v.Annotations {
		annotations[key] = value
	}
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "the-uid", Annotations: annotations},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// volume lets external-provisioner make a volume, and writes what it asks for and what the PersistentVolume that it
// returns makes the kubelet, external-attacher and external-resizer ask for.
func (v vendor) volume(t *testing.T, out *strings.Builder, rec *recorder, conn *grpc.ClientConn) {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		key := a.GetNamespace() + "." + a.(clienttesting.GetAction).GetName()
		return true, &v1.Secret{Data: map[string][]byte{key: []byte("x")}}, nil
	})
	p := provisioner.NewCSIProvisioner(client, time.Minute, "id", "pvc", -1, conn, nil, v.Driver,
		rpc.PluginCapabilitySet{csi.PluginCapability_Service_CONTROLLER_SERVICE: true},
		rpc.ControllerCapabilitySet{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME: true},
		"", false, false, nil, nil, nil, nil, nil, nil, nil, false, "", nil, false, false, nil)
	pv, _, err := p.Provision(t.Context(), controller.ProvisionOptions{
		StorageClass: &storagev1.StorageClass{Provisioner: v.Driver, Parameters: v.Class, MountOptions: v.MountOptions},
		PVC:          v.claim(),
	})
	if err != nil {
		t.Fatalf("%s: %v", v.Driver, err)
	}
	mount := rec.created.GetVolumeCapabilities()[0].GetMount()
	secrets := ""
	for key := range rec.created.GetSecrets() {
		secrets = key
	}
	line(out, "CreateVolume", secrets, fileSystem(mount.GetFsType(), mount.GetMountFlags()), object(rec.created.GetParameters()))
	c := pv.Spec.CSI
	line(out, "ControllerPublishVolume", secret(c.ControllerPublishSecretRef))
	line(out, "NodeStageVolume", secret(c.NodeStageSecretRef), fileSystem(c.FSType, pv.Spec.MountOptions))
	line(out, "NodePublishVolume", secret(c.NodePublishSecretRef), fileSystem(c.FSType, pv.Spec.MountOptions))
	line(out, "ControllerExpandVolume", secret(c.ControllerExpandSecretRef))
	line(out, "NodeExpandVolume", secret(c.NodeExpandSecretRef))
	const key = "volume.kubernetes.io/provisioner-deletion-secret-"
	deletion := &v1.SecretReference{Name: pv.Annotations[key+"name"], Namespace: pv.Annotations[key+"namespace"]}
	line(out, "DeleteVolume", secret(deletion))
}

// snapshot writes what external-snapshotter asks for.
func (v vendor) snapshot(t *testing.T, out *strings.Builder) {
	t.Helper()
	if v.Snapshot == nil {
		return
	}
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: v.claim().Name, Namespace: "default", UID: "SNAP"}}
	ref, err := utils.GetSecretReference(utils.SnapshotterSecretParams, v.Snapshot, utils.GetDynamicSnapshotContentNameForSnapshot(s), s)
	if err != nil {
		t.Fatalf("%s: %v", v.Driver, err)
	}
	params, err := utils.RemovePrefixedParameters(v.Snapshot)
	if err != nil {
		t.Fatalf("%s: %v", v.Driver, err)
	}
	line(out, "CreateSnapshot", secret(ref), object(params))
	line(out, "DeleteSnapshot", secret(ref))
}

func line(out *strings.Builder, call, secret string, more ...string) {
	fmt.Fprintf(out, "  %s secret=%s", call, secret)
	for _, m := range more {
		fmt.Fprintf(out, " %s", m)
	}
	fmt.Fprintln(out)
}

func secret(ref *v1.SecretReference) string {
	if ref == nil || ref.Name == "" {
		return ""
	}
	return ref.Namespace + "." + ref.Name
}

func fileSystem(fsType string, flags []string) string {
	return fmt.Sprintf("fs=%s flags=%s", fsType, strings.Join(flags, ","))
}

func object(parameters map[string]string) string {
	if len(parameters) == 0 {
		return "{}"
	}
	text, err := json.Marshal(parameters)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
