package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// objectChanged tells the controller of claims, and of classes by their claims.
func (n *Node) objectChanged(key source.Key) {
	switch key.Kind {
	case resolve.KindClaim:
		n.tellClaim(key)
		n.reportSize(key)
	case resolve.KindClass:
		for _, claim := range n.catalog.Claims() {
			n.tellClaim(source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name})
		}
	case resolve.KindVolume:
		if pv, ok := n.catalog.Get(key).(*corev1.PersistentVolume); ok && pv.Spec.ClaimRef != nil {
			n.reportSize(source.Key{Kind: resolve.KindClaim, Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name})
		}
	case resolve.KindCSIDriver:
		if n.report != nil {
			n.report.Wake() // it says whether volumes are attached, and how often limits are asked for
		}
	case resolve.KindVolumeAttachment:
		n.attachmentChanged(key)
	}
	n.changed.send()
}

// tellClaim tells the controller how a claim stands by now. One at a time: what
// was looked up first is told first.
func (n *Node) tellClaim(key source.Key) {
	n.telling.Lock()
	defer n.telling.Unlock()
	claim, ok := n.catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		n.controller.RemoveClaim(claimKey(key))
		return
	}
	class := n.catalog.ClassOf(claim)
	if n.catalog.Provider(key) == kube.Name || !isOurs(claim, class) { // a cluster's claims are the cluster's to bind
		n.controller.RemoveClaim(claimKey(key))
		return
	}
	c := controller.Claim{
		Key: claimKey(key), UID: string(claim.UID), Mode: modeOf(claim.Spec.VolumeMode),
		SizeBytes: claim.Spec.Resources.Requests.Storage().Value(), LimitBytes: claim.Spec.Resources.Limits.Storage().Value(),
		AccessModes: accessModes(claim.Spec.AccessModes), Source: dataSource(claim),
	}
	if class, err := n.translated(class); err != nil {
		n.log.Error("storage class of an in-tree plugin cannot be translated; its claims wait", "class", class.Name, "err",
			err)
		c.Class = controller.Class{Name: class.Name, Provisioner: state.DriverName(class.Provisioner)}
	} else if class != nil {
		c.Class = controller.Class{
			Name: class.Name, Provisioner: state.DriverName(class.Provisioner), Parameters: class.Parameters,
			MountOptions: class.MountOptions, AllowExpansion: class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion,
			Retain: retains(class),
		}
	} else {
		c.Class.Name = *claim.Spec.StorageClassName
	}
	n.controller.SetClaim(c)
}

// translated is the class for the CSI driver that serves it now; with an error
// the class itself.
func (n *Node) translated(class *storagev1.StorageClass) (*storagev1.StorageClass, error) {
	if class == nil {
		return nil, nil
	}
	csi, err := translate.Class(class, n.cfg.translated())
	if err != nil {
		return class, err
	}
	return csi, nil
}

// isOurs reports whether the claim's volume is to be made by the controller:
// it names no volume of its own, and a class that makes volumes; class is the
// claim's, or nil where it is not there.
func isOurs(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	if claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound {
		return false
	}
	if class != nil {
		return class.Provisioner != resolve.NoProvisioner
	}
	return claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != ""
}

// retains reports whether a volume of the class stays when its claim is deleted. The
// default is Delete (Kubernetes, StorageClass.reclaimPolicy).
func retains(class *storagev1.StorageClass) bool {
	return class != nil && class.ReclaimPolicy != nil && *class.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

func claimKey(k source.Key) controller.Key {
	return controller.Key{Namespace: k.Namespace, Name: k.Name}
}

// snapshotAnnotation is, on a claim whose dataSource is a VolumeSnapshot, the
// driver's id of the snapshot. Where no cluster is, nobody else knows it.
const snapshotAnnotation = "csi-volmgr.dev/snapshot-handle"

// dataSource is what the claim's volume is to hold in the beginning, by
// spec.dataSource or spec.dataSourceRef, which a cluster keeps equal.
func dataSource(claim *corev1.PersistentVolumeClaim) *controller.DataSource {
	var kind, name, namespace string
	switch s, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef; {
	case s != nil:
		kind, name = s.Kind, s.Name
	case ref != nil:
		kind, name = ref.Kind, ref.Name
		if ref.Namespace != nil {
			namespace = *ref.Namespace
		}
	default:
		return nil
	}
	handle := claim.Annotations[snapshotAnnotation]
	switch {
	case namespace != "" && namespace != claim.Namespace:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSourceRef %s %s is in namespace %s, and only the "+
			"claim's own may be used", kind, name, namespace)}
	case kind == resolve.KindClaim:
		return &controller.DataSource{Claim: controller.Key{Namespace: claim.Namespace, Name: name}}
	case kind == "VolumeSnapshot" && handle != "":
		return &controller.DataSource{SnapshotHandle: handle}
	case kind == "VolumeSnapshot":
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSource is VolumeSnapshot %s, and annotation %s does "+
			"not say which snapshot of the driver that is", name, snapshotAnnotation)}
	default:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSource is %s %s; want a PersistentVolumeClaim or a "+
			"VolumeSnapshot", kind, name)}
	}
}

func modeOf(m *corev1.PersistentVolumeMode) state.Mode {
	if m != nil && *m == corev1.PersistentVolumeBlock {
		return state.Block
	}
	return state.Filesystem
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) []state.AccessMode {
	out := make([]state.AccessMode, len(modes))
	for i, m := range modes {
		out[i] = state.AccessMode(m)
	}
	return out
}

// runClaims shows the catalog what the controller makes: volumes as
// PersistentVolumes, and what a claim waits for as its note.
func (n *Node) runClaims(ctx context.Context) error {
	select {
	case <-n.controller.Loaded():
	case <-ctx.Done():
		return nil
	}
	shown := map[string]*corev1.PersistentVolume{}
	notes := map[controller.Key]string{}
	for {
		changed := n.controller.Changed()
		if err := n.showVolumes(shown); err != nil {
			return err
		}
		n.showNotes(notes)
		n.catalog.Synced(sourceController)
		n.changed.send()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) showVolumes(shown map[string]*corev1.PersistentVolume) error {
	gone := maps.Clone(shown)
	for _, v := range n.controller.Volumes() {
		pv := persistentVolume(v)
		delete(gone, pv.Name)
		if old, ok := shown[pv.Name]; ok && equality.Semantic.DeepEqual(old, pv) {
			continue
		}
		if err := n.catalog.Put(sourceController, pv); err != nil {
			return fmt.Errorf("show volume %s: %w", pv.Name, err)
		}
		shown[pv.Name] = pv
	}
	for name := range gone {
		n.catalog.Delete(sourceController, source.Key{Kind: resolve.KindVolume, Name: name})
		delete(shown, name)
	}
	return nil
}

func (n *Node) showNotes(notes map[controller.Key]string) {
	gone := maps.Clone(notes)
	for _, c := range n.controller.Claims() {
		note := note(c)
		if c.Volume != nil || note == "" {
			continue
		}
		delete(gone, c.Claim)
		if notes[c.Claim] != note {
			notes[c.Claim] = note
			n.catalog.SetClaimNote(catalogKey(c.Claim), note)
		}
	}
	for key := range gone {
		delete(notes, key)
		n.catalog.SetClaimNote(catalogKey(key), "")
	}
}

func catalogKey(k controller.Key) source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: k.Namespace, Name: k.Name}
}

// note says what a claim waits for.
func note(c controller.ClaimStatus) string {
	if c.Reason == "" && c.Call != "" {
		return c.Call + " is in flight"
	}
	return c.Reason
}

// persistentVolume tells a volume of the controller as Kubernetes would.
func persistentVolume(v controller.Volume) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeMode(v.Mode)
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Annotations: map[string]string{
			resolve.NodeSizeAnnotation: strconv.FormatInt(v.NodeBytes, 10),
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.CapacityBytes,
				resource.BinarySI)},
			ClaimRef: &corev1.ObjectReference{
				Kind: resolve.KindClaim, Namespace: v.Claim.Namespace,
				Name: v.Claim.Name, UID: types.UID(v.ClaimUID),
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(v.ReclaimPolicy),
			StorageClassName:              v.Class, MountOptions: v.MountOptions, VolumeMode: &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: string(v.Driver), VolumeHandle: v.Handle, FSType: v.FSType, VolumeAttributes: v.Context,
				ControllerPublishSecretRef: secretRef(v.AttachSecret), NodeStageSecretRef: secretRef(v.StageSecret),
				NodePublishSecretRef: secretRef(v.PublishSecret), NodeExpandSecretRef: secretRef(v.NodeExpandSecret),
			}},
		},
	}
	for _, m := range v.AccessModes {
		pv.Spec.AccessModes = append(pv.Spec.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	return pv
}

func secretRef(r state.SecretRef) *corev1.SecretReference {
	if r == (state.SecretRef{}) {
		return nil
	}
	return &corev1.SecretReference{Namespace: r.Namespace, Name: r.Name}
}

// Wanted reports which pod of the sources names the claim (controller.Usage).
func (n *Node) Wanted(claim controller.Key) string {
	for _, p := range n.catalog.Pods() {
		if p.Namespace != claim.Namespace {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
				v.Ephemeral != nil && p.Name+"-"+v.Name == claim.Name
		}) {
			return "pod " + p.Namespace + "/" + p.Name
		}
	}
	return ""
}

// InUse reports who on this node has the volume, or may have it (controller.Usage).
func (n *Node) InUse(id state.VolumeID, name string) string {
	driver, handle, _ := strings.Cut(string(id), "^") // as state.SharedID has it
	return n.manager.UsedBy(id, name,
		n.layout.StagePath(state.Filesystem, state.DriverName(driver), handle, name),
		n.layout.StagePath(state.Block, state.DriverName(driver), handle, name))
}

// translated are the kinds of in-tree volumes that are translated.
func (c Config) translated() []string {
	if c.Translate == nil {
		return translate.Kinds()
	}
	return c.Translate
}
