// Package resolve turns a pod and the objects that it names into a
// [state.PodWant]: the volumes that the pod wants on this node.
//
// It owns the checks of a claim and its volume in the kubelet's order, the
// binding of claims when there is no cluster, the CSIDriver policies, the spec
// of each kind of volume, and the validation of every name that can reach a
// path or a request ([Check]). A volume that cannot be resolved becomes a
// [state.VolumeWant] whose Problem names the object, the field, the value found
// and the value wanted; it does not affect the pod's other volumes.
//
// It does not look objects up itself ([Objects] does), keep state, read the
// clock, or know whether a driver is running.
//
// As in Kubernetes, an inline CSI volume needs a CSIDriver object that lists
// Ephemeral in spec.volumeLifecycleModes; without the object a driver may only
// have persistent volumes. Without a cluster, the object is a manifest.
package resolve
