package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The annotations of a Node that csi-volmgr writes.
const (
	// AttachAnnotation makes the attach-detach controller attach volumes to the node.
	AttachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	// NodeIDAnnotation has every driver's node id, for attachers that do not read CSINodes.
	NodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"
	// WriterAnnotation names the process that writes status.volumesInUse.
	WriterAnnotation = "csi-volmgr.dev/volumes-in-use-writer"
)

// runDrivers keeps the drivers in Node and CSINode up to date.
func (r *Reporter) runDrivers(ctx context.Context) {
	var b outage.Backoff
	var last reported
	for ctx.Err() == nil {
		v, changed := r.view(false)
		var retry <-chan time.Time
		timer := time.NewTimer(0)
		timer.Stop()
		if v.node != nil {
			if err := r.reportDrivers(ctx, v, &last); err != nil && ctx.Err() == nil {
				wait := b.Next(err)
				r.problem("drivers", err, wait)
				timer.Reset(wait)
				retry, changed = timer.C, nil
			} else {
				b = outage.Backoff{}
				r.problem("drivers", nil, 0)
			}
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// reported holds the drivers that were last written to the CSINode, and the UID of its Node.
type reported struct {
	node    types.UID
	drivers map[state.DriverName]Driver
	gone    map[state.DriverName]bool
}

// reportDrivers writes the drivers that the Node and CSINode lack. It leaves out drivers
// whose topology contradicts the Node's labels, and returns an error about them.
func (r *Reporter) reportDrivers(ctx context.Context, v view, last *reported) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var refused []error
	for _, name := range slices.Sorted(maps.Keys(v.drivers)) {
		if err := checkDriver(v.drivers[name], v); err != nil {
			refused = append(refused, err)
			delete(v.drivers, name)
		}
	}
	alone, err := r.patchDrivers(ctx, v)
	refused = append(refused, alone...)
	if err != nil {
		return errors.Join(append(refused, err)...)
	}
	same := func(a, b Driver) bool { return equality.Semantic.DeepEqual(a, b) }
	if last.node != v.node.UID || !maps.EqualFunc(last.drivers, v.drivers, same) || !maps.Equal(last.gone, v.gone) {
		if err := r.writeCSINode(ctx, v); err != nil {
			return errors.Join(append(refused, err)...)
		}
		*last = reported{v.node.UID, v.drivers, v.gone}
	}
	return errors.Join(refused...)
}

// patchDrivers writes the drivers to the Node in one patch. If the server refuses it, each driver
// is written alone, because one whose topology the server does not allow must not keep the others
// away. refused has the errors of those; they are deleted from v.drivers. If no driver is
// accepted, the refusal is not about one driver and becomes err.
func (r *Reporter) patchDrivers(ctx context.Context, v view) (refused []error, err error) {
	_, err = r.patchNode(ctx, v)
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return nil, err
	}
	accepted := map[state.DriverName]Driver{}
	for _, name := range slices.Sorted(maps.Keys(v.drivers)) {
		one := v
		one.drivers = map[state.DriverName]Driver{name: v.drivers[name]}
		n, err := r.patchNode(ctx, one)
		if err != nil {
			refused = append(refused, fmt.Errorf("driver %s: %w", name, err))
			continue
		}
		v.node, accepted[name] = n, v.drivers[name]
	}
	if len(accepted) == 0 {
		return nil, err
	}
	maps.DeleteFunc(v.drivers, func(name state.DriverName, _ Driver) bool { _, ok := accepted[name]; return !ok })
	return refused, nil
}

// maxNodeID bounds a driver's id for the node, in bytes.
const maxNodeID = 256

// checkNames returns an error if the API server would refuse the Node or the CSINode with all
// drivers because of this driver's names: CSI allows more than Kubernetes does.
func checkNames(d Driver) error {
	if why := validation.IsDNS1123Subdomain(strings.ToLower(string(d.Name))); len(why) > 0 {
		return fmt.Errorf("driver %s: GetPluginInfo: name: not a name for Kubernetes: %s", d.Name, strings.Join(why, "; "))
	}
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		why := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(d.Topology[key]))
		if len(why) > 0 {
			return fmt.Errorf("driver %s: NodeGetInfo: accessible_topology: %s=%s: not a label for Kubernetes: %s", d.Name, key,
				d.Topology[key], strings.Join(why, "; "))
		}
	}
	return nil
}

// checkDriver returns an error if a driver must not be written. Its topology becomes
// labels of the Node; if one already has another value, pods would be scheduled to
// nodes that cannot reach their volumes.
func checkDriver(d Driver, v view) error {
	if err := checkNames(d); err != nil {
		return err
	}
	if d.NodeID == "" {
		return fmt.Errorf("driver %s: NodeGetInfo: node_id: found none, want the id under which a controller attaches to "+
			"this node", d.Name)
	}
	if len(d.NodeID) > maxNodeID { // the API server would refuse the CSINode with all its drivers
		return fmt.Errorf("driver %s: NodeGetInfo: node_id: found %d bytes, want at most %d (CSI 1.13, NodeGetInfo)", d.Name,
			len(d.NodeID), maxNodeID)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		if has, there := v.node.Labels[key]; there && has != d.Topology[key] {
			return fmt.Errorf("driver %s: NodeGetInfo: accessible_topology: found %s=%s, want %s, which is the node's label",
				d.Name, key, d.Topology[key], has)
		}
		for _, other := range slices.Sorted(maps.Keys(v.drivers)) {
			if other < d.Name && v.drivers[other].Topology[key] != "" && v.drivers[other].Topology[key] != d.Topology[key] {
				return fmt.Errorf("driver %s: NodeGetInfo: accessible_topology: found %s=%s, want %s, which driver %s says", d.Name,
					key, d.Topology[key], v.drivers[other].Topology[key], other)
			}
		}
	}
	return nil
}

// patchNode writes the annotations and labels that are missing or wrong. As with the
// kubelet, topology labels stay when a driver goes: volumes that were made for a
// topology remain there. It returns the new Node.
func (r *Reporter) patchNode(ctx context.Context, v view) (*corev1.Node, error) {
	annotations, labels := map[string]any{}, map[string]any{}
	if v.node.Annotations[AttachAnnotation] != "true" {
		annotations[AttachAnnotation] = "true"
	}
	has := v.node.Annotations[NodeIDAnnotation]
	ids := map[string]string{}
	if has != "" && json.Unmarshal([]byte(has), &ids) != nil {
		ids = map[string]string{} // another program wrote it wrongly; replace it
	}
	before := maps.Clone(ids)
	for name := range v.gone {
		delete(ids, string(name))
	}
	for name, d := range v.drivers {
		ids[string(name)] = d.NodeID
		for key, value := range d.Topology {
			if _, there := v.node.Labels[key]; !there {
				labels[key] = value
			}
		}
	}
	switch text, err := json.Marshal(ids); {
	case err != nil:
		return nil, fmt.Errorf("write node %s: %w", v.node.Name, err)
	case len(ids) == 0 && has != "":
		annotations[NodeIDAnnotation] = nil
	case !maps.Equal(before, ids):
		annotations[NodeIDAnnotation] = string(text)
	}
	if len(annotations)+len(labels) == 0 {
		return v.node, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations, "labels": labels}})
	if err != nil {
		return nil, fmt.Errorf("write node %s: %w", v.node.Name, err)
	}
	n, err := r.config.Core.Nodes().Patch(ctx, v.node.Name, types.MergePatchType, patch)
	if err != nil {
		return nil, fmt.Errorf("write node %s: annotations and labels: %w", v.node.Name, err)
	}
	return n, nil
}

// writeCSINode creates the CSINode, or updates it if it differs.
func (r *Reporter) writeCSINode(ctx context.Context, v view) error {
	client := r.config.Storage.CSINodes()
	old, err := client.Get(ctx, v.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		old, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("read CSINode %s: %w", v.node.Name, err)
	}
	if old != nil && !ownedBy(old, v.node) {
		// It belongs to an earlier Node with this name, and would be garbage-collected with it.
		if err := client.Delete(ctx, old.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(old.UID))}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CSINode %s, which belongs to an earlier Node: %w", old.Name, err)
		}
		old = nil
	}
	if old == nil {
		made := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
			Name:            v.node.Name,
			OwnerReferences: []metav1.OwnerReference{ownerOf(v.node)},
		}}
		made.Spec.Drivers = entries(nil, v)
		r.annotate(made)
		if _, err := client.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make CSINode %s: %w", v.node.Name, err)
		}
		return nil
	}
	changed := old.DeepCopy()
	changed.Spec.Drivers = entries(old.Spec.Drivers, v)
	r.annotate(changed)
	if equality.Semantic.DeepEqual(changed, old) {
		return nil
	}
	if _, err := client.Update(ctx, changed.Name, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write CSINode %s: %w", v.node.Name, err)
	}
	return nil
}

// annotate sets the annotations of Config on the CSINode, and leaves others alone.
func (r *Reporter) annotate(c *storagev1.CSINode) {
	for key, value := range r.config.Annotations {
		switch {
		case value == "":
			delete(c.Annotations, key)
		case c.Annotations == nil:
			c.Annotations = map[string]string{key: value}
		default:
			c.Annotations[key] = value
		}
	}
}

func ownerOf(n *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

func ownedBy(c *storagev1.CSINode, n *corev1.Node) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID == n.UID
	})
}

// entries returns the drivers that the CSINode must list: those registered, and earlier
// ones that were not unregistered. A driver keeps its place in the list.
func entries(before []storagev1.CSINodeDriver, v view) []storagev1.CSINodeDriver {
	var out []storagev1.CSINodeDriver
	left := maps.Clone(v.drivers)
	for _, e := range before {
		name := state.DriverName(e.Name)
		if d, up := left[name]; up {
			out = append(out, entry(d))
			delete(left, name)
		} else if !v.gone[name] {
			out = append(out, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		out = append(out, entry(left[name]))
	}
	return out
}

func entry(d Driver) storagev1.CSINodeDriver {
	e := storagev1.CSINodeDriver{
		Name: string(d.Name), NodeID: d.NodeID,
		TopologyKeys: slices.Sorted(maps.Keys(d.Topology)),
	}
	if d.MaxVolumes > 0 {
		count := int32(min(d.MaxVolumes, math.MaxInt32)) //nolint:gosec // bounded by min
		e.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return e
}
