// Package resolve turns a pod and the objects it names into what it wants of
// the node's volumes: a [state.PodWant].
//
// Owns: the checks of a claim and its volume in the kubelet's order, binding
// where there is no cluster, the CSIDriver policies, the spec of each kind of
// volume, and the validation of every name that can reach a path or a request
// ([Check]). What cannot be resolved becomes a [state.VolumeWant] with a
// Problem that names the object, the field, what was found and what is wanted;
// the other volumes of the pod are not touched by it.
//
// Does not: look anything up itself ([Objects] does), keep state, read the
// clock, or know whether a driver is there.
//
// Inline CSI volumes need a CSIDriver object that lists Ephemeral in
// spec.volumeLifecycleModes, as with Kubernetes: without the object only
// Persistent is allowed. Where there is no cluster, a CSIDriver manifest is
// that object.
package resolve
