package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// clusterKinds are the kinds by which a vendor's manifest runs its driver in a cluster and gives it rights there.
func clusterKinds() []string {
	return []string{
		"APIService", "CSIStorageCapacity", "ClusterRole", "ClusterRoleBinding", "CronJob", "CustomResourceDefinition",
		"DaemonSet", "Deployment", "HorizontalPodAutoscaler", "Ingress", "Job", "LimitRange", "MutatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "NetworkPolicy", "PodDisruptionBudget",
		"PodSecurityPolicy", "PodTemplate", "PriorityClass", "ReplicaSet", "ReplicationController", "ResourceQuota", "Role",
		"RoleBinding", "SecurityContextConstraints", "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	}
}

// Other is an object of a kind that csi-volmgr does not read.
type Other struct{ Kind, Namespace, Name string }

// DecodeKnown is like DecodeContext, but returns the objects of kinds that csi-volmgr does not read as others, where
// DecodeContext returns an error. A kind that is probably misspelt remains an error.
func DecodeKnown(ctx context.Context, file string, data []byte) (o Decoded, err error) {
	return decodeUntil(goneWith(ctx), file, data, true)
}

// otherKind notes an object of a kind that is not read.
func (d *decoder) otherKind(n *yaml.Node, name string) {
	ofCluster := slices.Contains(clusterKinds(), name)
	known := KindNames()
	switch {
	case ofCluster || d.skips && len(Nearest(name, known)) == 0:
		meta := child(n, "metadata")
		d.others = append(d.others, Other{name, text(meta, "namespace"), text(meta, "name")})
	default:
		d.add(lineOf(n, "kind"), "kind", fmt.Sprintf("found %q, want one of %s%s", cut(name), strings.Join(known, ", "),
			suggest(name, known)))
	}
}

// refuseOthers adds one error for all objects that run a driver in a cluster.
func (d *decoder) refuseOthers() {
	if len(d.others) == 0 || d.skips {
		return
	}
	rest := "the file has no others"
	if n := len(d.objects); n > 0 {
		rest = fmt.Sprintf("apply the other %d with: csi-volmgr apply --skip-unknown", n)
	}
	e := &Error{File: d.file, Field: "kind", Problem: fmt.Sprintf("found %s: objects that run a driver or give it rights "+
		"in a cluster; csi-volmgr runs no containers: start the driver as docs/drivers.md says; %s", Count(d.others), rest)}
	d.errs = append(Errors{e}, d.errs...)
}

// Count says how many objects there are of each kind, sorted.
func Count(all []Other) string {
	number := map[string]int{}
	for _, o := range all {
		number[o.Kind]++
	}
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(number)) {
		words = append(words, fmt.Sprintf("%d %s", number[kind], cut(kind)))
	}
	return strings.Join(words, ", ")
}
