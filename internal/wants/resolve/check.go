package resolve

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// reserved is the prefix of the volume context keys that a node sets itself.
const reserved = "csi.storage.k8s.io/"

// Limits on what goes into requests, in bytes (CSI 1.13, size limits).
const (
	maxString = 128
	maxFlags  = 4096
)

// showBytes is how many bytes of an object's value a message shows.
const showBytes = 80

// Fault says what is wrong with one field of an object. Found is never the
// value of a secret.
type Fault struct{ Field, Found, Want string }

func (f Fault) String() string {
	return fmt.Sprintf("%s: found %s, want %s", f.Field, show(f.Found), f.Want)
}

// plain matches a value that a message shows without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// show formats an object's value for a message: quoted unless it is a plain word,
// and cut if it is long.
func show(s string) string {
	if len(s) > showBytes {
		return fmt.Sprintf("%q... (%d bytes)", s[:showBytes], len(s))
	}
	if plain.MatchString(s) {
		return s
	}
	return fmt.Sprintf("%q", s)
}

// Check returns the faults in an object's names and in the fields that csi-volmgr
// reads, without looking at other objects. Sources call it when an object arrives:
// one that passes is safe to index and to make paths of.
func Check(obj runtime.Object) []Fault {
	switch o := obj.(type) {
	case *corev1.Pod:
		return append(checkIdentity(o), checkPodVolumes(o)...)
	case *corev1.PersistentVolumeClaim:
		return append(checkMeta(o, true), checkClaim(o)...)
	case *corev1.PersistentVolume:
		return append(checkMeta(o, false), checkVolume(o)...)
	case *storagev1.StorageClass:
		faults := append(checkMeta(o, false), checkPlain("provisioner", o.Provisioner)...)
		return append(faults, checkReclaim("reclaimPolicy", o.ReclaimPolicy)...)
	case *storagev1.VolumeAttributesClass:
		return append(checkMeta(o, false), checkAttributesClass(o)...)
	case *storagev1.CSIDriver:
		return append(checkMeta(o, false), checkCSIDriver(o)...)
	case *corev1.Secret:
		return append(checkMeta(o, true), checkKeys("data", o.Data)...)
	case *corev1.ConfigMap:
		return append(checkMeta(o, true), checkConfigMap(o)...)
	case *storagev1.VolumeAttachment:
		faults := append(checkMeta(o, false), checkPlain("spec.attacher", o.Spec.Attacher)...)
		return append(faults, checkPlain("spec.nodeName", o.Spec.NodeName)...)
	case *certificatesv1.ClusterTrustBundle:
		return checkTrustBundle(o)
	case *snapshotv1.VolumeSnapshot:
		return append(checkMeta(o, true), checkSnapshot(o)...)
	case *snapshotv1.VolumeSnapshotClass:
		return append(checkMeta(o, false), checkSnapshotClass(o)...)
	case *snapshotv1.VolumeSnapshotContent:
		return append(checkMeta(o, false), checkSnapshotContent(o)...)
	case *groupv1.VolumeGroupSnapshot:
		return append(checkMeta(o, true), checkGroupSnapshot(o)...)
	case *groupv1.VolumeGroupSnapshotClass:
		return append(checkMeta(o, false), checkGroupSnapshotClass(o)...)
	case *groupv1.VolumeGroupSnapshotContent:
		return append(checkMeta(o, false), checkGroupSnapshotContent(o)...)
	case *Endpoints:
		return checkEndpoints(o)
	case *Node:
		return checkMeta(o, false)
	}
	return []Fault{{"kind", fmt.Sprintf("%T", obj), "a kind that csi-volmgr reads"}}
}

func checkMeta(o metav1.Object, namespaced bool) []Fault {
	var faults []Fault
	if f, bad := checkSubdomain("metadata.name", o.GetName()); bad {
		faults = append(faults, f)
	}
	if namespaced {
		if f, bad := checkLabel("metadata.namespace", o.GetNamespace()); bad {
			faults = append(faults, f)
		}
	}
	if uid := string(o.GetUID()); uid != "" {
		faults = append(faults, checkPlain("metadata.uid", uid)...)
	}
	return faults
}

// uid matches a valid pod UID of at most maxUID bytes, which becomes one element of a path.
var uid = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)

const maxUID = 63

// checkIdentity checks the fields that make up a pod's directory and its key.
func checkIdentity(pod *corev1.Pod) []Fault {
	faults := checkMeta(pod, true)
	if len(pod.UID) > maxUID || !uid.MatchString(string(pod.UID)) {
		faults = append(faults, Fault{
			"metadata.uid", string(pod.UID),
			"1 to 63 letters, digits and dashes, a letter or digit first and last",
		})
	}
	if a := pod.Spec.ServiceAccountName; a != "" {
		if f, bad := checkSubdomain("spec.serviceAccountName", a); bad {
			faults = append(faults, f)
		}
	}
	return faults
}

func checkPodVolumes(pod *corev1.Pod) []Fault {
	var faults []Fault
	names := map[string]bool{}
	for i, v := range pod.Spec.Volumes {
		field := fmt.Sprintf("spec.volumes[%d]", i)
		if f, bad := checkLabel(field+".name", v.Name); bad {
			faults = append(faults, f)
		}
		if names[v.Name] {
			faults = append(faults, Fault{field + ".name", v.Name, "a name that no other volume of the pod has"})
		}
		names[v.Name] = true
		if _, f, bad := sourceKind(field, v.VolumeSource); bad {
			faults = append(faults, f)
		}
	}
	eachUse(pod, func(name, field string, _ bool) {
		if !names[name] {
			faults = append(faults, Fault{field + ".name", name, "the name of one of the pod's spec.volumes"})
		}
	})
	return faults
}

func checkClaim(c *corev1.PersistentVolumeClaim) []Fault {
	faults := append(checkModes(c.Spec.AccessModes), checkVolumeMode("spec.volumeMode", c.Spec.VolumeMode)...)
	if n := c.Spec.VolumeName; n != "" {
		if f, bad := checkSubdomain("spec.volumeName", n); bad {
			faults = append(faults, f)
		}
	}
	return faults
}

// checkReclaim refuses a policy that csi-volmgr does not follow. An empty policy means Delete.
func checkReclaim(field string, p *corev1.PersistentVolumeReclaimPolicy) []Fault {
	if p == nil || *p == "" || *p == corev1.PersistentVolumeReclaimDelete || *p == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	return []Fault{{field, string(*p), "Delete or Retain"}}
}

// checkVolume makes the checks of a PersistentVolume that need no other object.
func checkVolume(pv *corev1.PersistentVolume) []Fault {
	faults := append(checkModes(pv.Spec.AccessModes), checkVolumeMode("spec.volumeMode", pv.Spec.VolumeMode)...)
	if f, bad := checkSubdomain("metadata.name", pv.Name); bad {
		faults = append(faults, f)
	}
	// Old objects of a cluster may have Recycle.
	if p := &pv.Spec.PersistentVolumeReclaimPolicy; *p != corev1.PersistentVolumeReclaimRecycle {
		faults = append(faults, checkReclaim("spec.persistentVolumeReclaimPolicy", p)...)
	}
	set := sources(pv.Spec.PersistentVolumeSource)
	if len(set) != 1 {
		faults = append(faults, Fault{"spec", strings.Join(set, " and "), "exactly one kind of volume"})
	}
	total := 0
	for i, o := range pv.Spec.MountOptions {
		for _, f := range checkText(fmt.Sprintf("spec.mountOptions[%d]", i), o, maxFlags) {
			f.Found = optionKeys(o)
			faults = append(faults, f)
		}
		total += len(o)
	}
	if total > maxFlags {
		faults = append(faults, Fault{
			"spec.mountOptions", fmt.Sprintf("%d bytes", total),
			fmt.Sprintf("at most %d bytes in all", maxFlags),
		})
	}
	if src := pv.Spec.CSI; src != nil {
		faults = append(faults, checkSource(src)...)
	}
	return faults
}

func checkSource(src *corev1.CSIPersistentVolumeSource) []Fault {
	var faults []Fault
	if f, bad := checkDriver("spec.csi.driver", src.Driver); bad {
		faults = append(faults, f)
	}
	switch h := src.VolumeHandle; {
	case h == "":
		faults = append(faults, Fault{"spec.csi.volumeHandle", h, "the volume's id as its driver knows it"})
	case !utf8.ValidString(h) || strings.ContainsRune(h, 0):
		faults = append(faults, Fault{"spec.csi.volumeHandle", h, "UTF-8 without NUL"})
	}
	faults = append(faults, checkText("spec.csi.fsType", src.FSType, maxString)...)
	if f, bad := checkAttributes("spec.csi.volumeAttributes", src.VolumeAttributes, isNodeKey); bad {
		faults = append(faults, f)
	}
	for _, ref := range []struct {
		field string
		ref   *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", src.ControllerPublishSecretRef},
		{"nodeStageSecretRef", src.NodeStageSecretRef},
		{"nodePublishSecretRef", src.NodePublishSecretRef},
		{"nodeExpandSecretRef", src.NodeExpandSecretRef},
	} {
		if ref.ref == nil {
			continue
		}
		if f, bad := checkLabel("spec.csi."+ref.field+".namespace", ref.ref.Namespace); bad {
			faults = append(faults, f)
		}
		if f, bad := checkSubdomain("spec.csi."+ref.field+".name", ref.ref.Name); bad {
			faults = append(faults, f)
		}
	}
	return faults
}

// checkInline checks an inline CSI volume of a pod.
func checkInline(field string, src *corev1.CSIVolumeSource) (Fault, bool) {
	if f, bad := checkDriver(field+".driver", src.Driver); bad {
		return f, true
	}
	if src.FSType != nil {
		if faults := checkText(field+".fsType", *src.FSType, maxString); len(faults) > 0 {
			return faults[0], true
		}
	}
	if ref := src.NodePublishSecretRef; ref != nil {
		if f, bad := checkSubdomain(field+".nodePublishSecretRef.name", ref.Name); bad {
			return f, true
		}
	}
	return checkAttributes(field+".volumeAttributes", src.VolumeAttributes, isReserved)
}

// isReserved reports whether the key, in upper or lower case, is one that a pod's
// author may not set, because a driver trusts that the node set it.
func isReserved(key string) bool {
	return len(key) >= len(reserved) && strings.EqualFold(key[:len(reserved)], reserved)
}

// isNodeKey reports whether the key is one that the node itself sets. A volume
// that a driver made may have other keys with the same prefix: external-provisioner
// passes the names of claim and volume to drivers, and some return them.
func isNodeKey(key string) bool {
	if !isReserved(key) {
		return false
	}
	rest := strings.ToLower(key[len(reserved):])
	return rest == "ephemeral" || strings.HasPrefix(rest, "pod.") || strings.HasPrefix(rest, "serviceaccount.")
}

func checkAttributes(field string, attributes map[string]string, refuse func(string) bool) (Fault, bool) {
	var keys []string
	for k := range attributes {
		if refuse(k) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return Fault{}, false
	}
	slices.Sort(keys)
	return Fault{field, keys[0], "no key that only the node sets (" + reserved + ")"}, true
}

func checkCSIDriver(o *storagev1.CSIDriver) []Fault {
	var faults []Fault
	if f, bad := checkDriver("metadata.name", o.Name); bad {
		faults = append(faults, f)
	}
	for i, m := range o.Spec.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			faults = append(faults, Fault{fmt.Sprintf("spec.volumeLifecycleModes[%d]", i), string(m), "Persistent or Ephemeral"})
		}
	}
	return append(faults, checkTokenRequests(o.Spec.TokenRequests)...)
}

// The lifetime of a requested token, in seconds.
const minToken, maxToken = 600, 1<<32 - 1

// checkTokenRequests makes the API server's checks.
func checkTokenRequests(requests []storagev1.TokenRequest) []Fault {
	var faults []Fault
	audiences := map[string]bool{}
	for i, r := range requests {
		field := fmt.Sprintf("spec.tokenRequests[%d]", i)
		if audiences[r.Audience] {
			faults = append(faults, Fault{field + ".audience", r.Audience, "an audience that no other request has"})
		}
		audiences[r.Audience] = true
		if s := r.ExpirationSeconds; s != nil && (*s < minToken || *s > maxToken) {
			faults = append(faults, Fault{
				field + ".expirationSeconds", strconv.FormatInt(*s, 10),
				fmt.Sprintf("%d to %d", minToken, int64(maxToken)),
			})
		}
	}
	return faults
}

func checkConfigMap(o *corev1.ConfigMap) []Fault {
	faults := append(checkKeys("data", o.Data), checkKeys("binaryData", o.BinaryData)...)
	for k := range o.BinaryData {
		if _, both := o.Data[k]; both {
			faults = append(faults, Fault{"binaryData", k, "a key that data does not have"})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.String(), b.String()) })
	return faults
}

// checkKeys checks keys that become file names.
func checkKeys[V any](field string, m map[string]V) []Fault {
	var faults []Fault
	for k := range m {
		if len(validation.IsConfigMapKey(k)) > 0 {
			faults = append(faults, Fault{
				field, k,
				"keys of letters, digits, '-', '_' and '.', at most 253 bytes, not beginning with '..'",
			})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Found, b.Found) })
	return faults
}

func checkModes(modes []corev1.PersistentVolumeAccessMode) []Fault {
	var faults []Fault
	for i, m := range modes {
		switch m {
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod:
		default:
			faults = append(faults, Fault{
				fmt.Sprintf("spec.accessModes[%d]", i), string(m),
				"ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod",
			})
		}
	}
	return faults
}

func checkVolumeMode(field string, m *corev1.PersistentVolumeMode) []Fault {
	if m == nil || *m == corev1.PersistentVolumeFilesystem || *m == corev1.PersistentVolumeBlock {
		return nil
	}
	return []Fault{{field, string(*m), "Filesystem or Block"}}
}

// driverName is CSI 1.13's rule for GetPluginInfoResponse.name.
var driverName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
