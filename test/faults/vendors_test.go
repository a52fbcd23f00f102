package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// vendor has the parameters of a driver's classes.
type vendor struct {
	Driver       string
	Class        map[string]string
	MountOptions []string
	Annotations  map[string]string
	Snapshot     map[string]string // nil: the class is of volumes without snapshots
}

// name is the name of the vendor's objects.
func (v vendor) name() string { return strings.ReplaceAll(v.Driver, ".", "-") }

// anyVolume is the name of each PersistentVolume in vendors.requests.
const anyVolume = "pvc-the-uid"

// The classes of widely used drivers lead to the requests that Kubernetes makes with them: external-provisioner and
// external-snapshotter wrote vendors.requests (test/cluster/sidecars).
//
// Sidecars: SA-01, SP-02, SP-03, SP-08, SP-15, SP-38, SR-01, SS-02, SS-04, SS-07.
func TestClassesOfVendors(t *testing.T) {
	t.Parallel()
	var all []vendor
	text, err := os.ReadFile("testdata/vendors.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile("testdata/vendors.requests")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, csistrict.Script{})
	names := n.claimVendors(all, string(text))
	n.growAndSnapshot(all)
	n.verdict()
	if diff := gocmp.Diff(strings.Split(string(text), "\n"), strings.Split(n.requests(all, names), "\n")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// claimVendors makes a pod with a claim of each class, waits until they are mounted, and returns the vendors' names by
// their volumes'.
func (n *node) claimVendors(all []vendor, requests string) map[string]string {
	n.T.Helper()
	docs := secretsOf(requests, anyVolume)
	var volumes []volume
	for _, v := range all {
		docs = append(docs, v.class(), v.claim("1Mi"))
		volumes = append(volumes, harness.FromClaim(v.name(), v.name()))
	}
	n.Apply(docs...)
	names := map[string]string{}
	harness.Until(n.Node, "the volumes", n.API.WatchPersistentVolumes, func(pvs map[string]server.PVStatus) bool {
		for name, pv := range pvs {
			names[name] = strings.TrimPrefix(pv.Claim, "default/")
		}
		return len(pvs) == len(all)
	})
	docs = []string{harness.Pod("web", volumes...)}
	for name := range names { // a volume's secret may be named after it
		docs = append(docs, secretsOf(requests, name)...)
	}
	n.Apply(docs...)
	n.Mounted("web")
	return names
}

// growAndSnapshot grows the volumes, makes snapshots, and deletes all.
func (n *node) growAndSnapshot(all []vendor) {
	n.T.Helper()
	var docs, claims, snapshots []string
	for _, v := range all {
		docs, claims = append(docs, v.claim("2Mi")), append(claims, v.name())
		if v.Snapshot != nil {
			docs, snapshots = append(docs, v.snapshotClass(), v.snapshot()), append(snapshots, v.name())
		}
	}
	n.Apply(docs...)
	n.await("NodeExpandVolume", len(claims))
	n.await("CreateSnapshot", len(snapshots))
	n.DeletePods("web")
	n.Do("", append([]string{"delete", "snapshot", "--reason", "tested"}, snapshots...)...)
	n.DeleteClaims(claims...)
}

// secretsOf returns the secrets that the requests have, each with one key that names it, for a volume.
func secretsOf(requests, volume string) (docs []string) {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`secret=([^ \n]+)`).FindAllStringSubmatch(requests, -1) {
		if volume == anyVolume || strings.Contains(m[1], anyVolume) {
			found[strings.ReplaceAll(m[1], anyVolume, volume)] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		namespace, name, _ := strings.Cut(key, ".")
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData: {%s: x}",
			name, namespace, key))
	}
	return docs
}

func (v vendor) class() string {
	return fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s}\nprovisioner: %s\n"+
		"allowVolumeExpansion: true\nparameters: %s\nmountOptions: %s", v.name(), driverName, oneLine(v.Class), oneLine(v.MountOptions))
}

func (v vendor) snapshotClass() string {
	return fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: %s}\ndriver: %s\n"+
		"deletionPolicy: Delete\nparameters: %s", v.name(), driverName, oneLine(v.Snapshot))
}

func (v vendor) claim(size string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %[1]s, annotations: %[2]s}\n"+
		"spec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: %[3]s}}}",
		v.name(), oneLine(v.Annotations), size)
}

func (v vendor) snapshot() string {
	return fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: %[1]s}\n"+
		"spec: {volumeSnapshotClassName: %[1]s, source: {persistentVolumeClaimName: %[1]s}}", v.name())
}

// oneLine returns a value as YAML in one line.
func oneLine(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// request has the fields of requests that a class decides about, and those that say whose it is.
type request struct {
	Name, VolumeID, SourceVolumeID, SnapshotID string
	VolumeCapabilities                         []capability
	VolumeCapability                           capability
	Parameters                                 map[string]string
}

type capability struct {
	Mount struct {
		FSType     string
		MountFlags []string
	}
}

// line is the request in the form of vendors.requests.
func (r request) line(e csistrict.Event) string {
	line := fmt.Sprintf("  %s secret=%s", e.Call, strings.Join(e.SecretKeys, ","))
	m := r.VolumeCapability.Mount
	if len(r.VolumeCapabilities) > 0 {
		m = r.VolumeCapabilities[0].Mount
	}
	if slices.Contains([]string{"CreateVolume", "NodeStageVolume", "NodePublishVolume"}, e.Call) {
		line += fmt.Sprintf(" fs=%s flags=%s", m.FSType, strings.Join(m.MountFlags, ","))
	}
	if strings.HasPrefix(e.Call, "Create") {
		line += " " + strings.Replace(oneLine(r.Parameters), "null", "{}", 1)
	}
	return line
}

// requests returns what the driver was asked for, in the form of vendors.requests. names has the vendors' names by
// their volumes'.
func (n *node) requests(all []vendor, names map[string]string) string {
	n.T.Helper()
	asked := map[string]string{} // vendor's name and call -> line
	for _, e := range n.events("") {
		if e.Event != csistrict.EventBegin {
			continue
		}
		var r request
		if err := json.Unmarshal(e.Request, &r); err != nil {
			n.T.Fatalf("%s: %v", e.Request, err)
		}
		volume := cmp.Or(r.SourceVolumeID, r.VolumeID, r.Name)
		if r.SourceVolumeID != "" { // the strict driver names a snapshot as the request does
			names[r.Name] = names[volume]
		}
		key, line := names[cmp.Or(r.SnapshotID, volume)]+" "+e.Call, strings.ReplaceAll(r.line(e), volume, anyVolume)
		if volume == "" {
			line = r.line(e)
		}
		if asked[key] != "" && asked[key] != line {
			line = asked[key] + "; then " + line
		}
		asked[key] = line
	}
	var out strings.Builder
	for _, v := range all {
		fmt.Fprintln(&out, v.Driver)
		for _, call := range []string{
			"CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "ControllerExpandVolume",
			"NodeExpandVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot",
		} {
			if line := asked[v.name()+" "+call]; line != "" {
				fmt.Fprintln(&out, line)
			}
		}
	}
	return out.String()
}
