package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// inTreeKinds returns the in-tree kinds that this node translates to CSI.
func (r *resolver) inTreeKinds() []string {
	if r.config.Translate == nil {
		return translate.Kinds()
	}
	return slices.Clone(r.config.Translate)
}

func (r *resolver) translates(kind string) bool { return slices.Contains(r.inTreeKinds(), kind) }

// asCSI returns pv with a CSI source: itself, or its translation.
func (r *resolver) asCSI(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	set := sources(pv.Spec.PersistentVolumeSource)
	if len(set) != 1 {
		return nil, fmt.Errorf("%s: spec: found %d sources (%s), want exactly one", volumeKey(pv), len(set),
			strings.Join(set, ", "))
	}
	if set[0] == "csi" {
		return pv, nil
	}
	if !r.translates(set[0]) {
		return nil, fmt.Errorf("%s: spec.%s: %s", volumeKey(pv), set[0], r.lacks(set[0], r.volumeKinds()))
	}
	csi, err := translate.Volume(pv)
	if err != nil {
		return nil, fmt.Errorf("%s: spec.%s: translate to CSI: %w", volumeKey(pv), set[0], err)
	}
	return csi, nil
}

// persistent resolves a PersistentVolume with a CSI source. claim is nil for an
// in-tree source written into the pod.
func (r *resolver) persistent(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim,
	u claimUse,
) (state.VolumeWant, error) {
	spec, err := r.persistentSpec(pv)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %w", volumeKey(pv), err)
	}
	if err := r.checkMode(pv, spec.Mode, u.use); err != nil {
		return state.VolumeWant{}, err
	}
	if err := r.onThisNode(pv, true); err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %w", volumeKey(pv), err)
	}
	policy, err := r.policy(spec.Driver, storagev1.VolumeLifecyclePersistent)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %w", volumeKey(pv), err)
	}
	w := state.VolumeWant{ID: state.SharedID(spec.Driver, spec.Handle), Spec: spec, Mount: r.mount(spec, policy)}
	// In a cluster the attacher honours readOnly. Without one, csi-volmgr attaches the
	// volume for writing, so the pod's mount must be read-only.
	readOnly := pv.Spec.CSI.ReadOnly && !r.config.ClusterAttach
	w.Mount.ReadOnly, w.GID = u.readOnly || readOnly, gid(pv)
	w.Mount.Ownership = r.ownership(w, policy)
	if err := r.label(&w, u.volume, policy.seLinuxMount); err != nil {
		return state.VolumeWant{}, err
	}
	w.Spec.NoAttach, w.Topology = !policy.attach, r.topology(pv)
	if policy.attach {
		va, hold := r.attachment(spec)
		if va != nil {
			w.Spec.PublishContext, w.Spec.Attachment = maps.Clone(va.Status.AttachmentMetadata), string(va.UID)
		} else if policy.mustAttach && !r.config.ClusterAttach {
			w.Unattached = r.unattached(spec)
		}
		w.Hold = hold
	}
	if claim != nil {
		w.Spec.Claim = claim.Namespace + "/" + claim.Name
		if !u.readOnly {
			setSize(&w, pv, claim)
		}
	}
	return w, nil
}

// gidAnnotation, on a PersistentVolume, is the group that its pods must have.
const gidAnnotation = "pv.beta.kubernetes.io/gid"

// gid returns the group of the volume's annotation. Like the kubelet, it ignores
// one that is not a number.
func gid(pv *corev1.PersistentVolume) *int64 {
	n, err := strconv.ParseInt(pv.Annotations[gidAnnotation], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// persistentSpec returns the spec of the volume, from which requests are made.
func (r *resolver) persistentSpec(pv *corev1.PersistentVolume) (state.Spec, error) {
	src := pv.Spec.CSI
	if err := r.checkPersistent(pv); err != nil {
		return state.Spec{}, err
	}
	s := state.Spec{
		Driver:     state.DriverName(src.Driver),
		Handle:     src.VolumeHandle,
		Name:       pv.Name,
		Mode:       state.Filesystem,
		Context:    src.VolumeAttributes,
		AttachRef:  secretRef(src.ControllerPublishSecretRef),
		StageRef:   secretRef(src.NodeStageSecretRef),
		PublishRef: secretRef(src.NodePublishSecretRef),
		ExpandRef:  secretRef(src.NodeExpandSecretRef),
	}
	if m := pv.Spec.VolumeMode; m != nil {
		s.Mode = state.Mode(*m)
	}
	if s.Mode == state.Filesystem {
		s.FSType, s.MountFlags = src.FSType, slices.Clone(pv.Spec.MountOptions)
	}
	for _, m := range pv.Spec.AccessModes {
		s.AccessModes = append(s.AccessModes, state.AccessMode(m))
	}
	s.StagePath = r.config.Layout.StagePath(s.Mode, s.Driver, s.Handle, s.Name)
	return s, nil
}

// checkMode refuses a raw block volume that a container lists in volumeMounts, and
// a file system that a container lists in volumeDevices.
func (r *resolver) checkMode(pv *corev1.PersistentVolume, mode state.Mode, u use) error {
	if mode == state.Block && u.mount != "" {
		return fmt.Errorf("%s has volumeMode Block, but is specified in volumeMounts: %s of %s needs one with "+
			"volumeMode Filesystem, or move it to volumeDevices", volumeKey(pv), u.mount, r.name())
	}
	if mode == state.Filesystem && u.device != "" {
		return fmt.Errorf("%s has volumeMode Filesystem, but is specified in volumeDevices: %s of %s needs one with "+
			"volumeMode Block, or move it to volumeMounts", volumeKey(pv), u.device, r.name())
	}
	return nil
}

// mount returns the part of the publish request that depends on the pod.
func (r *resolver) mount(s state.Spec, p policy) state.MountSpec {
	pod := podOf(r.pod)
	m := state.MountSpec{Pod: pod, Target: r.config.Layout.Target(s.Mode, pod.UID, s.Name), Renewal: p.renewal}
	if s.Mode == state.Block {
		m.DevicePath = r.config.Layout.DevicePath(pod.UID, s.Name)
	} else {
		m.FSGroup = r.fsGroup()
	}
	if p.podInfo {
		m.Context = map[string]string{
			reserved + "pod.name":            pod.Name,
			reserved + "pod.namespace":       pod.Namespace,
			reserved + "pod.uid":             string(pod.UID),
			reserved + "serviceAccount.name": pod.ServiceAccount,
			reserved + "ephemeral":           strconv.FormatBool(s.Ephemeral),
		}
	}
	return m
}

func (r *resolver) fsGroup() *int64 {
	if sc := r.pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		gid := *sc.FSGroup
		return &gid
	}
	return nil
}

// inline resolves an inline CSI volume.
func (r *resolver) inline(v *corev1.Volume, field string) (state.VolumeWant, error) {
	src := v.CSI
	if f, bad := checkInline(field, src); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	driver := state.DriverName(src.Driver)
	if err := r.checkInlineAllowed(driver, field+".driver"); err != nil {
		return state.VolumeWant{}, err
	}
	policy, err := r.policy(driver, storagev1.VolumeLifecycleEphemeral)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %s: %w", r.name(), field, err)
	}
	uid := state.PodUID(r.pod.UID)
	s := state.Spec{
		Driver:      driver,
		Handle:      state.EphemeralHandle(uid, v.Name),
		Name:        v.Name,
		Ephemeral:   true,
		Mode:        state.Filesystem,
		AccessModes: []state.AccessMode{state.ReadWriteOnce},
		Context:     maps.Clone(src.VolumeAttributes),
	}
	if src.FSType != nil {
		s.FSType = *src.FSType
	}
	if ref := src.NodePublishSecretRef; ref != nil {
		s.PublishRef = state.SecretRef{Namespace: r.pod.Namespace, Name: ref.Name}
	}
	w := state.VolumeWant{ID: state.PodVolumeID(driver, uid, v.Name), Spec: s, Mount: r.mount(s, policy)}
	w.Mount.ReadOnly = src.ReadOnly != nil && *src.ReadOnly
	w.Mount.Ownership = r.ownership(w, policy)
	return w, nil
}

// inTree resolves an in-tree source in the pod's spec. Its CSI driver serves it as
// a persistent volume.
func (r *resolver) inTree(v *corev1.Volume, field string) (state.VolumeWant, error) {
	pv, err := translate.Inline(v, r.pod.Namespace)
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %s: translate to CSI: %w", r.name(), field, err)
	}
	if err := r.checkInlineAllowed(state.DriverName(pv.Spec.CSI.Driver), field); err != nil {
		return state.VolumeWant{}, err
	}
	// The library gives some volumes a URI as their name, and the name becomes part of a
	// path. The URI's hash is the same for every pod that uses the volume.
	if _, bad := checkSubdomain("", pv.Name); bad {
		sum := sha256.Sum256([]byte(pv.Name))
		pv.Name = "inline-" + hex.EncodeToString(sum[:])
	}
	w, err := r.persistent(pv, nil, claimUse{volume: v.Name, readOnly: pv.Spec.CSI.ReadOnly})
	if err != nil {
		return state.VolumeWant{}, fmt.Errorf("%s: %s: %w", r.name(), field, err)
	}
	w.Spec.Migrated = true
	return w, nil
}

// policy holds what a driver's CSIDriver object says about its volumes.
type policy struct {
	attach, podInfo bool
	// mustAttach is set if the object itself has attachRequired: true; attach is also
	// set by default.
	mustAttach   bool
	fsGroup      storagev1.FSGroupPolicy
	renewal      state.Renewal
	seLinuxMount bool
}

// policy returns the driver's policy, or an error if the driver may not have volumes
// of this lifecycle. Without a CSIDriver object the API's defaults apply.
func (r *resolver) policy(driver state.DriverName, mode storagev1.VolumeLifecycleMode) (policy, error) {
	key := Key{Kind: KindCSIDriver, Name: string(driver)}
	object, ok := r.objects.Get(key).(*storagev1.CSIDriver)
	if !ok {
		if err := r.unread(key); err != nil {
			return policy{}, err
		}
		if mode != storagev1.VolumeLifecyclePersistent {
			return policy{}, fmt.Errorf("%s: not found; an inline volume needs one with %s in spec.volumeLifecycleModes",
				key, mode)
		}
		return policy{attach: true, fsGroup: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}, nil
	}
	modes := object.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if !slices.Contains(modes, mode) {
		return policy{}, fmt.Errorf("%s: spec.volumeLifecycleModes: found %v, want %s among them", key, modes, mode)
	}
	// Sources and API servers fill in the default. An object from before the field
	// existed does not say who must own the files.
	fsGroup := object.Spec.FSGroupPolicy
	if fsGroup == nil || *fsGroup == "" {
		return policy{}, fmt.Errorf("%s: spec.fsGroupPolicy: found none, want ReadWriteOnceWithFSType, File or None", key)
	}
	return policy{
		renewal:      renewal(object.Spec),
		seLinuxMount: object.Spec.SELinuxMount != nil && *object.Spec.SELinuxMount,
		fsGroup:      *fsGroup,
		attach:       object.Spec.AttachRequired == nil || *object.Spec.AttachRequired,
		mustAttach:   isTrue(object.Spec.AttachRequired),
		podInfo:      object.Spec.PodInfoOnMount != nil && *object.Spec.PodInfoOnMount,
	}, nil
}

// renewal returns what the driver wants renewed by repeated publish calls.
func renewal(spec storagev1.CSIDriverSpec) state.Renewal {
	w := state.Renewal{
		Republish: spec.RequiresRepublish != nil && *spec.RequiresRepublish,
		InSecrets: spec.ServiceAccountTokenInSecrets != nil && *spec.ServiceAccountTokenInSecrets,
	}
	for _, t := range spec.TokenRequests {
		want := state.TokenRequest{Audience: t.Audience}
		if t.ExpirationSeconds != nil {
			want.Lifetime = time.Duration(*t.ExpirationSeconds) * time.Second
		}
		w.Tokens = append(w.Tokens, want)
	}
	return w
}

func secretRef(ref *corev1.SecretReference) state.SecretRef {
	if ref == nil {
		return state.SecretRef{}
	}
	return state.SecretRef{Namespace: ref.Namespace, Name: ref.Name}
}

// checkPersistent refuses a volume whose values may not be in a request.
func (r *resolver) checkPersistent(pv *corev1.PersistentVolume) error {
	if faults := checkVolume(pv); len(faults) > 0 {
		return errors.New(faults[0].String())
	}
	if n := len(pv.Spec.CSI.VolumeHandle); n > state.MaxHandle {
		return errors.New(Fault{
			"spec.csi.volumeHandle", pv.Spec.CSI.VolumeHandle,
			fmt.Sprintf("at most %d bytes, not %d", state.MaxHandle, n),
		}.String())
	}
	return nil
}
