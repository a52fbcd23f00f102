package wire

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const classes = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: first, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: absent.example.com
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// claimed waits until ok accepts what the controller shows of the claim.
func claimed(t *testing.T, n *Node, ok func(controller.ClaimStatus, bool) bool) {
	t.Helper()
	for {
		changed := n.controller.Changed()
		c, known := n.controller.Claim(controller.Key{Namespace: "default", Name: "data"})
		if ok(c, known) {
			return
		}
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatalf("the claim stays %+v, known %v", c, known)
		}
	}
}

func TestAClaimFollowsTheDefaultClass(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, classes)
	claimed(t, n, func(c controller.ClaimStatus, known bool) bool { return known && c.Class == "first" })
	if _, err := n.Withdraw(t.Context(), manifestOf("---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: first}\nprovisioner: absent.example.com\n")); err != nil {
		t.Fatal(err)
	}
	claimed(t, n, func(_ controller.ClaimStatus, known bool) bool { return !known })
}

// TestAClaimJustAppliedIsDeletedWhole: DeleteClaim asks the controller even if that does not show the claim yet.
func TestAClaimJustAppliedIsDeletedWhole(t *testing.T) {
	n, _ := start(t, dirs(t))
	for range 20 {
		apply(t, n, classes)
		if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "data"}); err != nil {
			t.Fatal(err)
		}
		claimed(t, n, func(_ controller.ClaimStatus, known bool) bool { return !known })
	}
}

// A pod as kubectl gives it out has a status and a token of its cluster: apply says what becomes of each.
func TestApplyTellsOfWhatAPodHasFromItsCluster(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: c, image: i, volumeMounts: [{name: kube-api-access-1, mountPath: /v}]}]\n" +
		"  volumes: [{name: kube-api-access-1, projected: {sources: [{serviceAccountToken: {path: token}}]}}]\n"
	n, _ := start(t, dirs(t))
	applied, err := n.Apply(t.Context(), manifestOf(pod))
	if err != nil || len(applied) != 1 || applied[0].Note != "" || !strings.HasPrefix(applied[0].Warning, "pod shop/web: volume kube-api-access-1: no issuer of service account tokens here: remove the volume") {
		t.Errorf("%+v, %v", applied, err)
	}
	applied, err = n.Apply(t.Context(), manifestOf(strings.Replace(pod, "name: web,", "name: done,", 1)+"status: {phase: Succeeded}\n"))
	if err != nil || len(applied) != 1 || applied[0].Warning != "" || !strings.HasPrefix(applied[0].Note, "status.phase is Succeeded: it has ended and gets no volume; remove status") {
		t.Errorf("%+v, %v", applied, err)
	}
	applied, err = n.Apply(t.Context(), manifestOf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c, namespace: shop}\nprovisioner: d\n"))
	if err != nil || len(applied) != 1 || applied[0].Note != "metadata.namespace is ignored: a StorageClass has none" {
		t.Errorf("%+v, %v", applied, err)
	}
}

// A claim that nothing can serve is applied all the same, and apply says so: in any namespace, once for each claim.
func TestApplyWarnsOfAClassThatDoesNotExist(t *testing.T) {
	const claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: NAME, namespace: shop}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}CLASS}\n"
	const pv = "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: static, csi: {driver: d.example.com, volumeHandle: h}}\n"
	const class = "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: NAME}\nprovisioner: absent.example.com\n"
	n, _ := start(t, dirs(t))
	for _, tt := range []struct{ manifest, want string }{
		{claim, "claim shop/NAME: there is no default StorageClass; there are: none (a PersistentVolume without a class would do as well)"},
		{class, ""},
		{strings.ReplaceAll(claim, "CLASS", ", storageClassName: fast"), "claim shop/NAME: StorageClass fast not found; there are: local (a PersistentVolume of that class would do as well)"},
		{strings.ReplaceAll(claim, "CLASS", ", storageClassName: local"), ""},
		{strings.ReplaceAll(claim, "CLASS", `, storageClassName: ""`), ""},
		{strings.ReplaceAll(claim, "CLASS", ", storageClassName: static") + pv, ""},
		{strings.ReplaceAll(claim, "CLASS", ", storageClassName: late") + strings.ReplaceAll(class, "NAME", "late"), ""},
	} {
		text := strings.NewReplacer("NAME", "local", "CLASS", "").Replace(tt.manifest)
		applied, err := n.Apply(t.Context(), manifestOf(text))
		if err != nil || applied[0].Result == "" {
			t.Fatal(applied, err)
		}
		if got, want := applied[0].Warning, strings.ReplaceAll(tt.want, "NAME", "local"); got != want {
			t.Errorf("%s: got %q\nwant %q", text, got, want)
		}
	}
}

func TestUnmountPodMayBeCalledAgain(t *testing.T) {
	n, _ := start(t, dirs(t))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/s"}}}},
		Volumes:    []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	settings := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
		Data: map[string]string{"level": "low"},
	}
	beside := append(make([]runtime.Object, 0, 4), settings)
	if _, err := n.MountPod(within(t), pod, beside...); err != nil {
		t.Fatal(err)
	}
	if beside[:2][1] != nil {
		t.Error("MountPod writes into its caller's list")
	}
	settings.Data["level"] = "high"
	if kept, err := n.catalog.ConfigMap(t.Context(), "default", "c"); err != nil || kept.Data["level"] != "low" {
		t.Errorf("what MountPod was given is kept, and not a copy: %v, %v", kept, err)
	}
	over, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	_ = n.UnmountPod(over, pod)
	for range 2 {
		if err := n.UnmountPod(within(t), pod); err != nil {
			t.Error(err)
		}
	}
}

// What belongs to Docker is ended by Docker's words: its claim, its pod, and through its volume. Another front end's volume
// in another namespace has its own.
func TestWhatAFrontEndHasEndsByItsWords(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, _ := start(t, c)
	apply(t, n, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: directories}\nprovisioner: local.csi-volmgr.dev\nparameters: {type: directory}\n")
	for _, tt := range []struct{ front, volume, namespace, claim, pod, want string }{
		{named.Docker, "db_2", "default", "db-2", "docker.db-2", "docker volume rm db_2 (with podman: podman volume rm db_2)"},
		{named.Mount, "shop/data", "shop", "data", "mount.shop.data", "umount DIRECTORY && csi-volmgr volume remove shop/data"},
		{named.Nomad, "nomad-7", "nomad-default", "nomad-7", "nomad.nomad-7", "nomad volume delete -type host 7"},
	} {
		if err := n.Named.Create(within(t), named.Request{Name: tt.volume, FrontEnd: tt.front, Options: map[string]string{"class": "directories", "size": "1Mi"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Named.Mount(within(t), tt.volume, "container"); err != nil {
			t.Fatal(err)
		}
		if got := n.PodEnds(tt.namespace, tt.pod); got != tt.want {
			t.Errorf("%s: the pod ends by %q", tt.volume, got)
		}
		_, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: tt.namespace, Name: tt.claim})
		if !errors.Is(err, server.ErrConflict) || !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("delete pvc: %v", err)
		}
		if err := n.DeletePod(within(t), tt.namespace, tt.pod); !errors.Is(err, server.ErrConflict) || !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("delete pod: %v", err)
		}
	}
}

// A claim that a program makes without a namespace and a UID gets a volume, and a second MountPod finds the same one.
func TestATypedClaimBindsToOneVolume(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, _ := start(t, c)
	class := "directories"
	for _, namespace := range []string{"", "shop"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}}},
			Volumes: []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		}}
		beside := []runtime.Object{claim, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "local.csi-volmgr.dev", Parameters: map[string]string{"type": "directory"},
		}}
		var first string
		for range 2 {
			volumes, err := n.MountPod(within(t), pod, beside...)
			if err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = volumes["d"].SpecName
			}
			if volumes["d"].SpecName != first || first == "" {
				t.Errorf("volume %q, at the first call %q", volumes["d"].SpecName, first)
			}
		}
		if claim.UID != "" {
			t.Error("MountPod changes its caller's object")
		}
		if err := n.UnmountPod(within(t), pod); err != nil {
			t.Error(err)
		}
	}
}

// A pod keeps its volumes until it is deleted: the node refuses another manifest of its name. A pod with another UID
// takes its place, and the first one's volumes are removed.
//
// Faults: A154.
func TestAMountedPodKeepsItsVolumes(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, scratchPod)
	first := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), first); err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(scratchPod, "scratch", "more")
	_, err := n.Apply(t.Context(), manifestOf(other+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: beside}\n"))
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "delete pod web") {
		t.Errorf("another manifest of a mounted pod: %v", err)
	}
	if _, err := n.catalog.ConfigMap(t.Context(), "default", "beside"); err == nil {
		t.Error("a part of the refused manifest was applied")
	}
	if got := n.Manager().GetMountedVolumesForPod(first); got["scratch"].HostPath == "" {
		t.Errorf("the pod has %v", got)
	}
	apply(t, n, strings.Replace(other, "name: web}", "name: web, uid: second}", 1))
	if err := n.Manager().WaitForAttachAndMount(within(t), "second"); err != nil {
		t.Error(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), first); err != nil {
		t.Error(err)
	}
}

// Another source lists the pod without a volume that it still has. DeleteClaim then refuses the volume's claim and
// names the pod, since it would wait without end.
//
// Faults: A155.
func TestAClaimIsNotWaitedForThatAListedPodHas(t *testing.T) {
	c := dirs(t)
	uid := state.PodUID(resolve.UID(source.Key{Kind: resolve.KindPod, Namespace: "default", Name: "web"}))
	id := state.PodVolumeID("d.example", uid, "scratch") // the claim's volume has this ID
	_, handle, _ := strings.Cut(string(id), "^")
	keepVolumeOf(t, c, "d.example", handle, "")
	n, _ := start(t, c)
	inline := &refusing{}
	inline.well.Store(true)
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example"}, inline)
	apply(t, n, "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example}\nspec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}\n---"+
		strings.Replace(scratchPod, "emptyDir: {}", "csi: {driver: d.example}", 1))
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}}
	if err := n.catalog.Put("file", pod); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().Settle(within(t)); err != nil {
		t.Fatal(err)
	}
	if v, known := n.Manager().Volume(id); !known || len(v.Wanted) > 0 {
		t.Fatalf("%+v, %v", v, known)
	}
	claim := server.ClaimDeletion{Namespace: "default", Name: "data"}
	if _, err := n.DeleteClaim(within(t), audit.By{}, claim); !errors.Is(err, server.ErrConflict) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pod default/web") {
		t.Errorf("while the pod is listed: %v", err)
	}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	if err := n.catalog.Put("file", ended); err != nil {
		t.Fatal(err)
	}
	deleteBegins(t, n, claim)
}

// deleteBegins deletes a claim whose driver is absent, and returns when the controller waits for the driver.
func deleteBegins(t *testing.T, n *Node, claim server.ClaimDeletion) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := n.DeleteClaim(ctx, audit.By{}, claim)
		ended <- err
	}()
	claimed(t, n, func(c controller.ClaimStatus, _ bool) bool { return c.Phase == controller.Deleting })
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "is being deleted and not gone yet") {
		t.Errorf("delete claim %s: %v", claim.Name, err)
	}
}

// Apply refuses a claim that asks for no space, or for less than its volume was made for; one that returns to its old
// size is fine.
//
// Faults: A158.
func TestASizeThatNoVolumeHasIsRefused(t *testing.T) {
	c := dirs(t)
	keepVolume(t, c, `"requestedBytes":2147483648,"capacityBytes":2147483648,`)
	n, _ := start(t, c)
	<-n.controller.Loaded()
	asking := func(size string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
			"spec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: " + size + "}}}\n"
	}
	for size, want := range map[string]string{
		"0": "found 0, want more than 0", `"-1Gi"`: "found -1Gi, want more than 0",
		"1Gi": "found 1Gi, which is 1073741824 bytes; want at least 2147483648, since its volume pvc-u was made for that",
	} {
		_, err := n.Apply(t.Context(), manifestOf(asking(size)))
		if !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), "claim default/data: spec.resources.requests.storage: "+want) {
			t.Errorf("%s: %v", size, err)
		}
	}
	apply(t, n, asking("3Gi")) // the driver may refuse this later
	apply(t, n, asking("2Gi"))
	apply(t, n, strings.Replace(asking("1Ki"), "name: data", "name: other", 1))
	apply(t, n, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: static}\nspec: {accessModes: [ReadWriteOnce], volumeName: pv}\n")
}

// Withdraw says that a claim keeps its data only if the claim or its volume exists.
//
// Faults: A159.
func TestWithdrawSaysWhichClaimsKeepNothing(t *testing.T) {
	c := dirs(t)
	keepVolume(t, c, "")
	n, _ := start(t, c)
	<-n.controller.Loaded()
	text := ""
	for _, name := range []string{"data", "gone", "listed"} {
		text += "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\nspec: {accessModes: [ReadWriteOnce], volumeName: pv}\n"
	}
	apply(t, n, text[strings.LastIndex(text, "---"):])
	got, err := n.Withdraw(t.Context(), manifestOf(text))
	if err != nil || len(got) != 3 || got[0].Result != "kept" || got[1].Result != "absent" || got[1].Note != "" || got[2].Result != "kept" {
		t.Errorf("%+v, %v", got, err)
	}
}

// keepVolume writes a record of volume pvc-u of claim default/data for a node that starts.
func keepVolume(t *testing.T, c Config, fields string) {
	t.Helper()
	keepVolumeOf(t, c, "d.example", "h-1", fields)
}

// keepVolumeOf is keepVolume with the volume's driver and handle.
func keepVolumeOf(t *testing.T, c Config, driver state.DriverName, handle, fields string) {
	t.Helper()
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := journal.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	record := `{"version":1,"claim":{"namespace":"default","name":"data"},"uid":"u","name":"pvc-u","handle":"` + handle + `","volume":{"phase":"present"},` + fields +
		`"spec":{"class":"slow","driver":"` + string(driver) + `","sizeBytes":1,"accessModes":["ReadWriteOnce"],"mode":"Filesystem"}}`
	if err := errors.Join(b.CommitBucket(t.Context(), controller.Bucket, map[string][]byte{"default/data": []byte(record)}), b.Close()); err != nil {
		t.Fatal(err)
	}
}
