package resolve_test

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

func attachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// hostile has names that would lead out of a directory or break a message.
var hostile = []string{"", ".", "..", "../..", "/", "/etc", "a/b", "a/../../b", "a\x00b", "a\nb", "%2e%2e", "..data", "\xff", "A", "-a", "ünï", strings.Repeat("a", 4096)}

// FuzzNamesStayBelowTheRoot: rule 8. Whatever the names are, each path made from them is below the root, in the
// directory of its pod or of its volume.
func FuzzNamesStayBelowTheRoot(f *testing.F) {
	f.Add("11111111-2222-3333-4444-555555555555", "data", "pv-1", "csi.example.com", "vol-1")
	for _, h := range hostile {
		f.Add(h, "data", "pv-1", "csi.example.com", "vol-1")
		f.Add("u", h, "pv-1", "csi.example.com", "vol-1")
		f.Add("u", "data", h, "csi.example.com", "vol-1")
		f.Add("u", "data", "pv-1", h, "vol-1")
		f.Add("u", "data", "pv-1", "csi.example.com", h)
	}
	f.Fuzz(func(t *testing.T, uid, volume, pv, driver, handle string) {
		for _, kind := range []string{"claim", "block", "inline", "emptyDir", "configMap", "azureDisk"} {
			w := read(t, "testdata/base.yaml")
			w.pod().UID = types.UID(uid)
			rename(w, volume)
			w.drop("PersistentVolume", "", "pv-1")
			object := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle},
			}}}
			object.Name, w.claim().Spec.VolumeName = pv, pv
			w.objects[resolve.Key{Kind: "PersistentVolume", Name: pv}] = object
			switch kind {
			case "block":
				object.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
				c := &w.pod().Spec.Containers[0]
				c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: volume}}
			case "inline":
				source(w, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}})
				w.objects[resolve.Key{Kind: "CSIDriver", Name: driver}] = &storagev1.CSIDriver{
					Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}},
				}
			case "emptyDir":
				source(w, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
			case "configMap":
				configMap(w, corev1.ConfigMapVolumeSource{Optional: ptr(true)})
			case "azureDisk":
				source(w, corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: handle}})
			}
			for _, v := range w.resolve().Volumes {
				if v.Problem != "" {
					if len(v.Problem) > 2000 || strings.ContainsAny(v.Problem, "\x00\n") {
						t.Errorf("%s: problem %q is not one line", kind, v.Problem)
					}
					continue
				}
				below(t, kind, v.Mount.Target, "/r/pods/"+uid+"/", "/r/plugins/kubernetes.io/csi/volumeDevices/publish/")
				below(t, kind, v.Mount.DevicePath, "/r/pods/"+uid+"/volumeDevices/")
				below(t, kind, v.Spec.StagePath, "/r/plugins/kubernetes.io/csi/"+string(v.Spec.Driver)+"/", "/r/plugins/kubernetes.io/csi/volumeDevices/staging/")
			}
		}
	})
}

func below(t *testing.T, kind, path string, dirs ...string) {
	t.Helper()
	if path == "" {
		return
	}
	for _, dir := range dirs {
		if rest, ok := strings.CutPrefix(path, dir); ok && filepath.Clean(path) == path && rest != "" && !strings.ContainsRune(path, 0) && len(path) < 1024 {
			return
		}
	}
	t.Errorf("%s: path %q is not below one of %q", kind, path, dirs)
}

// FuzzCheckNeverPanics: Check returns for every object.
func FuzzCheckNeverPanics(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, h)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		pod := &corev1.Pod{}
		pod.Name, pod.Namespace, pod.UID = name, value, types.UID(value)
		pod.Spec.Volumes = []corev1.Volume{{Name: value}}
		secret := &corev1.Secret{Data: map[string][]byte{name: []byte(value)}}
		secret.Name, secret.Namespace = "s", "default"
		for _, fault := range append(resolve.Check(pod), resolve.Check(secret)...) {
			if fault.Field == "" || fault.Want == "" {
				t.Errorf("fault without field or want: %+v", fault)
			}
		}
	})
}
