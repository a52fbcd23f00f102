package resolve

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// madeVolume returns a volume as the controller makes it, with a value in each field that it may have.
func madeVolume() *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	gold := "gold"
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		ClaimRef:                      &corev1.ObjectReference{Kind: KindClaim, Namespace: "bank", Name: "data", UID: "u"},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
		MountOptions: []string{"noatime"}, VolumeMode: &mode, VolumeAttributesClassName: &gold,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "d", VolumeHandle: "h", FSType: "ext4", VolumeAttributes: map[string]string{"a": "b"},
			ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "n", Name: "s"},
		}},
	}}
	pv.Name = "pvc-u"
	return pv
}

// A PersistentVolume that says what the made one says, all of it or some, is no other volume.
func TestWhatIsTheMadeVolumeItself(t *testing.T) {
	for what, change := range map[string]func(*corev1.PersistentVolume){
		"all":               func(*corev1.PersistentVolume) {},
		"a reclaim policy":  func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = "Retain" },
		"no reclaim policy": func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = "" },
		"the handle alone": func(pv *corev1.PersistentVolume) {
			pv.Spec = corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"},
			}}
		},
		"the modes in another order": func(pv *corev1.PersistentVolume) {
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOnce}
		},
		"an earlier size": func(pv *corev1.PersistentVolume) {
			pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		},
		"no uid": func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" },
		"labels": func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"a": "b"} },
	} {
		pv := madeVolume()
		change(pv)
		if faults := CheckMade(madeVolume(), pv); len(faults) > 0 {
			t.Errorf("%s: %v", what, faults)
		}
	}
}

// Another value in any field of the spec is a fault that names the field, the value found and the right one.
func TestEachFieldOfAMadeVolumeIsCompared(t *testing.T) {
	fill(t, "spec", func(pv *corev1.PersistentVolume) reflect.Value { return reflect.ValueOf(&pv.Spec).Elem() })
	fill(t, "spec.csi", func(pv *corev1.PersistentVolume) reflect.Value { return reflect.ValueOf(pv.Spec.CSI).Elem() })
	fill(t, "spec.claimRef", func(pv *corev1.PersistentVolume) reflect.Value {
		return reflect.ValueOf(pv.Spec.ClaimRef).Elem()
	})
	pv := madeVolume()
	pv.Spec.CSI.VolumeHandle = "other"
	if got := CheckMade(madeVolume(), pv); len(got) != 1 || got[0].String() != "spec.csi.volumeHandle: found other, want h" {
		t.Errorf("%v", got)
	}
	pv = madeVolume()
	pv.Spec.CSI, pv.Spec.NFS = nil, &corev1.NFSVolumeSource{Server: "s", Path: "/p"}
	if got := CheckMade(madeVolume(), pv); len(got) != 1 || got[0].Field != "spec" {
		t.Errorf("a volume of another kind: %v", got)
	}
}

// Users who may only read see the problems of objects: a message about mount options has none of their values, since one
// may be a password.
func TestMountOptionsAreNotInMessages(t *testing.T) {
	made, is := madeVolume(), madeVolume()
	made.Spec.MountOptions = []string{"vers=3.0", "password=CANARY"}
	is.Spec.MountOptions = []string{"vers=3.0", "password=CANARY2"}
	got := CheckMade(made, is)
	if len(got) != 1 || got[0].String() != `spec.mountOptions: found "other values", want vers=...,password=...` {
		t.Errorf("%v", got)
	}
	is.Spec.MountOptions = []string{"ro", "password=CANARY,CANARY"}
	if got := CheckMade(made, is); len(got) != 1 || got[0].Found != "ro,password=...,..." {
		t.Errorf("%v", got)
	}
	for _, value := range []string{strings.Repeat("CANARY", maxFlags), "CANARY\t"} {
		is.Spec.MountOptions = []string{"password=" + value}
		got := checkVolume(is)
		if len(got) == 0 || strings.Contains(fmt.Sprint(got), "CANARY") {
			t.Errorf("%.300s", fmt.Sprint(got))
		}
	}
}

// fill gives each field of a struct another value in turn.
func fill(t *testing.T, of string, part func(*corev1.PersistentVolume) reflect.Value) {
	t.Helper()
	free := map[string]bool{ // a field that may differ, or that says nothing about the volume
		"spec.PersistentVolumeReclaimPolicy": true, "spec.PersistentVolumeSource": true,
		"spec.claimRef.Kind": true, "spec.claimRef.APIVersion": true, "spec.claimRef.ResourceVersion": true, "spec.claimRef.FieldPath": true,
	}
	for i := range part(madeVolume()).NumField() {
		pv := madeVolume()
		field := part(pv).Field(i)
		name := of + "." + part(pv).Type().Field(i).Name
		switch other := any(nil); field.Kind() {
		case reflect.String:
			field.SetString("other")
		case reflect.Bool:
			field.SetBool(!field.Bool())
		default:
			switch field.Interface().(type) {
			case corev1.ResourceList:
				other = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}
			case []corev1.PersistentVolumeAccessMode:
				other = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			case []string:
				other = []string{"other"}
			case map[string]string:
				other = map[string]string{"other": "x"}
			case *corev1.ObjectReference:
				other = &corev1.ObjectReference{Namespace: "evil", Name: "data"}
			case *corev1.SecretReference:
				other = &corev1.SecretReference{Namespace: "evil", Name: "s"}
			case *corev1.VolumeNodeAffinity:
				other = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
			case *corev1.PersistentVolumeMode:
				block := corev1.PersistentVolumeBlock
				other = &block
			case *string:
				silver := "silver"
				other = &silver
			case corev1.PersistentVolumeSource:
				continue // below
			default:
				t.Fatalf("%s: a type that the test does not know", name)
			}
			field.Set(reflect.ValueOf(other))
		}
		faults := CheckMade(madeVolume(), pv)
		if free[name] != (len(faults) == 0) {
			t.Errorf("%s: %v", name, faults)
		}
		for _, f := range faults {
			if !strings.HasPrefix(strings.ToLower(f.Field), "spec.") || f.Found == "" || f.Want == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
