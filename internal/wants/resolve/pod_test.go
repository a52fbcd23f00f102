package resolve_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Items: A14, F02, F12, A07, B17, F15, F16, F21.
func TestFullPodResolvesAsGolden(t *testing.T) {
	for _, name := range []string{"base", "full"} {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(read(t, "testdata/"+name+".yaml").resolve(), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden := "testdata/" + name + ".golden.json"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestStoppedPodWantsNothing(t *testing.T) {
	for phase, stopped := range map[corev1.PodPhase]bool{
		corev1.PodSucceeded: true, corev1.PodFailed: true, corev1.PodRunning: false, corev1.PodPending: false, corev1.PodUnknown: false, "": false,
	} {
		w := read(t, "testdata/base.yaml")
		w.pod().Status.Phase = phase
		if got := w.resolve(); got.Stopped != stopped || (len(got.Volumes) == 0) != stopped {
			t.Errorf("phase %q: got stopped %v and %d volumes", phase, got.Stopped, len(got.Volumes))
		}
	}
}

// TestPodBeingDeletedKeepsItsVolumes: only the end of its containers releases them.
// Items: A33.
func TestPodBeingDeletedKeepsItsVolumes(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	now := metav1.Now()
	w.pod().DeletionTimestamp = &now
	if got := w.only(t); got.Problem != "" || w.resolve().Stopped {
		t.Errorf("got %+v", got)
	}
}

// Items: B03, E05.
func TestClaimBeingDeletedIsUsedWhileItIsProtected(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	now := metav1.Now()
	w.claim().DeletionTimestamp, w.claim().Finalizers = &now, []string{"kubernetes.io/pvc-protection"}
	if got := w.only(t); got.Problem != "" {
		t.Errorf("problem: %s", got.Problem)
	}
}

func TestBindingWithoutACluster(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"both name each other":        func(*world) {},
		"only the claim names":        func(w *world) { w.volume().Spec.ClaimRef = nil },
		"only the volume names":       func(w *world) { w.claim().Spec.VolumeName = "" },
		"the volume names without id": func(w *world) { w.volume().Spec.ClaimRef.UID = ""; w.claim().Spec.VolumeName = "" },
		"a volume of an old claim beside": func(w *world) {
			old := w.volume().DeepCopy()
			old.Name, old.Spec.ClaimRef.UID = "pv-0", "old"
			w.objects[resolve.Key{Kind: "PersistentVolume", Name: "pv-0"}] = old
			w.claim().Spec.VolumeName = ""
		},
	} {
		w := read(t, "testdata/base.yaml")
		change(w)
		if got := w.only(t); got.Problem != "" || got.Spec.Name != "pv-1" || got.Spec.Claim != "default/data" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// Items: A32, B15, B16.
func TestSizes(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.claim().Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}
	if got := w.only(t); got.SizeBytes != 1<<30 || got.HaveBytes != 512<<20 {
		t.Errorf("got size %d, have %d", got.SizeBytes, got.HaveBytes)
	}
	// A reader must not make the volume grow (kubelet.md 2.6).
	w.pod().Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	if got := w.only(t); got.SizeBytes != 0 || got.HaveBytes != 0 || !got.Mount.ReadOnly {
		t.Errorf("read only: got size %d, have %d, read only %v", got.SizeBytes, got.HaveBytes, got.Mount.ReadOnly)
	}
}

// second adds a volume "more" to the pod, with its own claim bound to its own PersistentVolume with the same handle.
func second(t *testing.T, w *world) (*corev1.Volume, *corev1.PersistentVolume) {
	t.Helper()
	w.add(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: more}, spec: {volumeName: pv-2}}")
	pv := w.volume().DeepCopy()
	pv.Name, pv.Spec.ClaimRef = "pv-2", nil
	w.objects[resolve.Key{Kind: "PersistentVolume", Name: "pv-2"}] = pv
	pod := w.pod()
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "more"},
	}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "more"})
	return &pod.Spec.Volumes[1], pv
}

// Items: A12, B21.
func TestTwoNamesForOneVolumeAreOneWant(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	second(t, w)
	got := w.only(t)
	if names := []string{"data", "more"}; got.Problem != "" || !slices.Equal(got.Names, names) || !slices.Equal(got.Mount.Names, names) || got.Spec.Name != "pv-1" {
		t.Errorf("got %+v", got)
	}
}

func TestTwoNamesForOneVolumeThatContradict(t *testing.T) {
	for want, change := range map[string]func(v *corev1.Volume, pv *corev1.PersistentVolume){
		"persistentVolumeClaim.readOnly":                 func(v *corev1.Volume, _ *corev1.PersistentVolume) { v.PersistentVolumeClaim.ReadOnly = true },
		"what their PersistentVolumes pv-1 and pv-2 say": func(_ *corev1.Volume, pv *corev1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" },
	} {
		w := read(t, "testdata/base.yaml")
		change(second(t, w))
		got := w.only(t)
		if text := `volumes "data" and "more" of the pod are the same volume vol-1 of driver csi.example.com, but differ in ` + want + "; want them equal"; got.Problem != text || got.ID != "" || len(got.Names) != 2 {
			t.Errorf("got %+v, want problem %s", got, text)
		}
	}
}

// Items: F01, F03, F05.
func TestPodInfoOnMount(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	if got := w.only(t).Mount.Context; len(got) != 0 {
		t.Errorf("without a CSIDriver: got %v", got)
	}
	w.driver(storagev1.CSIDriverSpec{})
	if got := w.only(t).Mount.Context; len(got) != 0 {
		t.Errorf("with podInfoOnMount unset: got %v", got)
	}
	w.driver(storagev1.CSIDriverSpec{PodInfoOnMount: ptr(true)})
	got := w.only(t)
	for key, want := range map[string]string{
		"pod.name": "web", "pod.namespace": "default", "pod.uid": "11111111-2222-3333-4444-555555555555", "serviceAccount.name": "default", "ephemeral": "false",
	} {
		if got.Mount.Context["csi.storage.k8s.io/"+key] != want {
			t.Errorf("%s: got %v, want %q", key, got.Mount.Context, want)
		}
	}
	if len(got.Mount.Context) != 5 || len(got.Spec.Context) != 0 {
		t.Errorf("got mount %v, stage %v", got.Mount.Context, got.Spec.Context)
	}
}

// Items: A03, A04, A21, C22, C23, F17, A05, N-53.
func TestVolumeAttachmentHoldsWhereAClusterAttaches(t *testing.T) {
	metadata := map[string]string{"device": "/dev/sdb"}
	now := metav1.Now()
	for _, test := range []struct {
		name    string
		va      *storagev1.VolumeAttachment
		driver  *storagev1.CSIDriverSpec
		cluster bool
		context map[string]string
		hold    string
	}{
		{name: "none", cluster: true, hold: ": not found"},
		{name: "attached", cluster: true, va: &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: metadata}}, context: metadata},
		{name: "not attached", cluster: true, va: &storagev1.VolumeAttachment{}, hold: ": status.attached: found false, want true"},
		{name: "attach error", cluster: true, va: &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot"}}}, hold: ": status.attachError: no slot"},
		{name: "being deleted", cluster: true, va: &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}, hold: ": the existing one is being deleted"},
		{name: "attachRequired true", cluster: true, driver: &storagev1.CSIDriverSpec{AttachRequired: ptr(true)}, hold: ": not found"},
		{name: "attachRequired false", cluster: true, driver: &storagev1.CSIDriverSpec{AttachRequired: ptr(false)}},
		{name: "attachRequired false, yet attached", cluster: true, driver: &storagev1.CSIDriverSpec{AttachRequired: ptr(false)}, va: &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: metadata}}},
		{name: "no cluster"},
		{name: "no cluster, not attached", va: &storagev1.VolumeAttachment{}},
		{name: "no cluster, attached by a manifest", va: &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: metadata}}, context: metadata},
	} {
		w := read(t, "testdata/base.yaml")
		w.config.ClusterAttach = test.cluster
		name := attachmentName("vol-1", "csi.example.com", "node-1")
		if test.va != nil {
			w.objects[resolve.Key{Kind: "VolumeAttachment", Name: name}] = test.va
		}
		if test.driver != nil {
			w.driver(*test.driver)
		}
		got := w.only(t)
		hold := ""
		if test.hold != "" {
			hold = "waiting for VolumeAttachment " + name + test.hold
		}
		if got.Hold != hold || got.Problem != "" || len(got.Spec.PublishContext) != len(test.context) || got.Spec.PublishContext["device"] != test.context["device"] {
			t.Errorf("%s: got hold %q, context %v, want %q, %v", test.name, got.Hold, got.Spec.PublishContext, hold, test.context)
		}
		// If no cluster attaches the volume, csi-volmgr must not attach it either.
		if want := test.driver != nil && !*test.driver.AttachRequired; got.Spec.NoAttach != want {
			t.Errorf("%s: NoAttach: got %v, want %v", test.name, got.Spec.NoAttach, want)
		}
	}
}

func TestInlineVolumesAreNeverAttached(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.config.ClusterAttach = true
	inline(w, corev1.CSIVolumeSource{})
	w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}})
	if got := w.only(t); got.Hold != "" || got.Problem != "" || !got.Spec.Ephemeral || got.Spec.StagePath != "" {
		t.Errorf("got %+v", got)
	}
}

func TestHandlesLongerThanCSIAllowsArePassedOn(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.source().VolumeHandle = strings.Repeat("h", state.MaxHandle)
	if got := w.only(t); got.Problem != "" {
		t.Error(got.Problem)
	}
}

func TestRevisionFollowsTheSelectedContent(t *testing.T) {
	revision := func(data string, s corev1.ConfigMapVolumeSource) string {
		w := read(t, "testdata/base.yaml")
		if data != "" {
			w.add(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, "+data+"}")
		}
		configMap(w, s)
		got := w.only(t)
		if got.Problem != "" || got.Revision == "" {
			t.Fatalf("data %s: got %+v", data, got)
		}
		return got.Revision
	}
	onlyA := corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "a", Path: "a"}}}
	all := corev1.ConfigMapVolumeSource{}
	optional := corev1.ConfigMapVolumeSource{Optional: ptr(true), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}
	if revision("data: {a: '1', b: '2'}", onlyA) != revision("data: {a: '1', b: '3'}", onlyA) {
		t.Error("a key that is not selected changes the revision")
	}
	if revision("data: {a: '1'}", all) != revision("binaryData: {a: MQ==}", all) {
		t.Error("the same bytes as binaryData have another revision")
	}
	different := []string{
		revision("data: {a: '1'}", all), revision("data: {a: '2'}", all), revision("data: {b: '1'}", all),
		revision("data: {a: '1', b: '1'}", all), revision("", optional),
	}
	slices.Sort(different)
	if n := len(slices.Compact(slices.Clone(different))); n != len(different) {
		t.Errorf("%d revisions of %d contents", n, len(different))
	}
	if revision("", optional) != revision("data: {a: '1'}", optional) {
		t.Error("an optional configMap without the keys is not as one that is not there")
	}
}

// Items: A13.
// Scenarios: U-174.
func TestUnusedVolumesAreNotWanted(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.pod().Spec.Containers[0].VolumeMounts = nil
	if got := w.resolve().Volumes; len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

// A changed podInfoOnMount applies to the next call; the manager keeps the context with which a volume was mounted.
// Items: F04.
func TestPodInfoThatIsSwitched(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	for _, on := range []bool{false, true, false} {
		w.driver(storagev1.CSIDriverSpec{PodInfoOnMount: &on})
		if got := w.only(t).Mount.Context; (len(got) == 5) != on {
			t.Errorf("podInfoOnMount %v: got %v", on, got)
		}
	}
}

// A raw block volume is wanted if a container has it as a device.
// Items: B18.
func TestDevicesOfAPod(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	block := corev1.PersistentVolumeBlock
	w.volume().Spec.VolumeMode = &block
	c := &w.pod().Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	if got := w.only(t); got.Problem != "" || got.Spec.Mode != state.Block || got.Mount.DevicePath == "" || got.Spec.FSType != "" {
		t.Errorf("with a device: %+v", got)
	}
	c.VolumeDevices = nil
	if got := w.resolve().Volumes; len(got) != 0 {
		t.Errorf("without: %+v", got)
	}
}

// However many faults a pod has, each of its volumes has one problem.
// Items: B19.
func TestProblemsAreBounded(t *testing.T) {
	const volumes = 50
	w := read(t, "testdata/base.yaml")
	pod := w.pod()
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	for i := range volumes {
		name := "v" + strconv.Itoa(i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "no-" + name},
		}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name})
	}
	for range 3 {
		got := w.resolve().Volumes
		if len(got) != volumes {
			t.Fatalf("%d volumes", len(got))
		}
		for _, v := range got {
			if v.Problem == "" || len(v.Problem) > 200 {
				t.Errorf("problem of %v: %q", v.Names, v.Problem)
			}
		}
	}
}

// Items: B17, F21, I19.
func TestInTreeVolumeHasOneIDForAllPods(t *testing.T) {
	ids := map[state.VolumeID]string{}
	for _, name := range []string{"data", "other"} {
		w := read(t, "testdata/base.yaml")
		source(w, corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/s/d"}})
		rename(w, name)
		got := w.only(t)
		if got.Problem != "" || strings.Contains(got.Spec.Name, "/") || got.SizeBytes != 0 {
			t.Fatalf("got %+v", got)
		}
		ids[got.ID] = got.Spec.Name
	}
	if len(ids) != 1 {
		t.Errorf("got %v", ids)
	}
}

// Items: A26.
func TestGroupsThatVolumesBring(t *testing.T) {
	for value, want := range map[string]string{"1234": "1234", "": "none", "wheel": "none"} {
		w := read(t, "testdata/base.yaml")
		w.volume().Annotations = map[string]string{"pv.beta.kubernetes.io/gid": value}
		got := "none"
		if gid := w.only(t).GID; gid != nil {
			got = strconv.FormatInt(*gid, 10)
		}
		if got != want {
			t.Errorf("annotation %q: group %s, want %s", value, got, want)
		}
	}
}

func TestSizeTheNodeHasMade(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.volume().Annotations = map[string]string{resolve.NodeSizeAnnotation: "4096"}
	if got := w.only(t).HaveBytes; got != 4096 {
		t.Errorf("by the volume's annotation: %d", got)
	}
	w.volume().Annotations = nil
	w.claim().Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Ki")}
	if got := w.only(t).HaveBytes; got != 8192 {
		t.Errorf("by the claim's status: %d", got)
	}
}

// Items: F06, F07, F08, F09, F10.
func TestWhatADriverWantsWithEveryPublishCall(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	if got := w.only(t).Mount.Renewal; !reflect.DeepEqual(got, state.Renewal{}) {
		t.Errorf("without a CSIDriver: got %+v", got)
	}
	w.driver(storagev1.CSIDriverSpec{})
	if got := w.only(t).Mount.Renewal; !reflect.DeepEqual(got, state.Renewal{}) {
		t.Errorf("with nothing asked for: got %+v", got)
	}
	w.driver(storagev1.CSIDriverSpec{
		TokenRequests:     []storagev1.TokenRequest{{ExpirationSeconds: ptr(int64(600))}, {Audience: "vault"}},
		RequiresRepublish: ptr(true), ServiceAccountTokenInSecrets: ptr(true),
	})
	want := state.Renewal{Tokens: []state.TokenRequest{{Lifetime: 10 * time.Minute}, {Audience: "vault"}}, Republish: true, InSecrets: true}
	if got := w.only(t).Mount.Renewal; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTokenRequestsAreChecked(t *testing.T) {
	d := &storagev1.CSIDriver{}
	d.Name = "csi.example.com"
	d.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "a", ExpirationSeconds: ptr(int64(60))}, {Audience: "a"}}
	got := fmt.Sprint(resolve.Check(d))
	for _, want := range []string{"spec.tokenRequests[0].expirationSeconds: found 60, want 600 to 4294967295", "spec.tokenRequests[1].audience: found a, want an audience that no other request has"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
	}
}

// An unresolved volume has a field with the claim that the pod names, so that programs need not parse the sentence.
func TestWhatIsNotResolvedSaysItsClaim(t *testing.T) {
	for want, source := range map[string]corev1.VolumeSource{
		"n/nope":   {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nope"}},
		"n/p-data": {Ephemeral: &corev1.EphemeralVolumeSource{}},
		"":         {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nope"}}},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"},
			Spec: corev1.PodSpec{
				NodeName: "node", Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}},
				Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d"}}}},
			},
		}
		got := resolve.Pod(pod, new(world), resolve.Config{NodeName: "node", Builtins: []state.DriverName{kind.ConfigMap}})
		if len(got.Volumes) != 1 || got.Volumes[0].Problem == "" || got.Volumes[0].Claim != want {
			t.Errorf("want claim %q: %+v", want, got.Volumes)
		}
	}
}
