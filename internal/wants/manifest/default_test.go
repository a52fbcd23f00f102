package manifest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// bodies has, for each kind, the YAML of an object besides apiVersion, kind and metadata, with every field left out that
// has a default.
var bodies = map[string]string{
	resolve.KindPod:                  "spec: {containers: [{name: c}]}",
	resolve.KindClaim:                "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
	resolve.KindVolume:               "spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, csi: {driver: d.example.com, volumeHandle: h}}",
	resolve.KindClass:                "provisioner: d.example.com",
	resolve.KindAttributesClass:      "driverName: d.example.com\nparameters: {a: b}",
	resolve.KindCSIDriver:            "spec: {}",
	resolve.KindSecret:               "stringData: {a: b}\ndata: {c: ZA==}",
	resolve.KindConfigMap:            "data: {a: b}",
	resolve.KindVolumeAttachment:     "spec: {attacher: d.example.com, nodeName: n1, source: {persistentVolumeName: v}}",
	resolve.KindEndpoints:            "subsets: [{addresses: [{ip: 10.0.0.1}]}]",
	resolve.KindTrustBundle:          "spec: {trustBundle: PEM}",
	resolve.KindSnapshot:             "spec: {source: {persistentVolumeClaimName: c}}",
	resolve.KindSnapshotClass:        "driver: d.example.com\ndeletionPolicy: Delete",
	resolve.KindSnapshotContent:      "spec: {driver: d.example.com, deletionPolicy: Delete, source: {snapshotHandle: h}, volumeSnapshotRef: {name: s, namespace: n1}}",
	resolve.KindGroupSnapshot:        "spec: {source: {selector: {matchLabels: {a: b}}}}",
	resolve.KindGroupSnapshotClass:   "driver: d.example.com\ndeletionPolicy: Delete",
	resolve.KindGroupSnapshotContent: "spec: {driver: d.example.com, deletionPolicy: Delete, source: {groupSnapshotHandles: {volumeGroupSnapshotHandle: g, volumeSnapshotHandles: [h]}}, volumeGroupSnapshotRef: {name: s, namespace: n1}}",
}

// certificate returns a certificate in DER.
func certificate(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// An object that a program makes gets what its manifest would get, for every kind and at every call.
func TestATypedObjectGetsWhatItsManifestGets(t *testing.T) {
	var bundle bytes.Buffer
	if err := pem.Encode(&bundle, &pem.Block{Type: "CERTIFICATE", Bytes: certificate(t)}); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		metas := []string{"{name: x}", "{name: x, uid: u1, labels: {a: b}}"}
		if resolve.Namespaced(k.name) {
			metas = append(metas, "{name: x, namespace: shop}")
		}
		for _, meta := range metas {
			text := "metadata: " + meta + "\n" + strings.Replace(bodies[k.name], "PEM", strconv.Quote(bundle.String()), 1)
			read, err := Decode("f", []byte("apiVersion: "+k.apiVersion+"\nkind: "+k.name+"\n"+text))
			if err != nil {
				t.Errorf("%s %s: %v", k.name, meta, err)
				continue
			}
			typed := k.make()
			if err := yaml.Unmarshal([]byte(text), typed); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				Default(typed)
			}
			was, _ := Keep(read[0])
			is, err := Keep(typed)
			if err != nil || !bytes.Equal(was, is) || !equality.Semantic.DeepEqual(read[0], typed) {
				t.Errorf("%s %s: %v\ntyped %+v\nread  %+v", k.name, meta, err, typed, read[0])
			}
		}
	}
}

// A namespace on an object of a kind that has none would make the stored object unreadable at the next start.
func TestATypedObjectOfNoNamespaceHasNone(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	pv.Name, pv.Namespace = "v", "shop"
	Default(pv)
	if pv.Namespace != "" {
		t.Errorf("found namespace %q", pv.Namespace)
	}
	node := &resolve.Node{}
	Default(node) // of a kind that no manifest may have
	if node.GroupVersionKind() != (schema.GroupVersionKind{}) {
		t.Errorf("found %v", node.GroupVersionKind())
	}
	Default(nil)
}
