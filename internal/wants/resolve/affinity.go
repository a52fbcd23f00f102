package resolve

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Node has the fields that csi-volmgr reads of this node's own object. Only an API
// server has that object.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Allocatable is what pods may use of the node (status.allocatable).
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// DeepCopyObject implements [runtime.Object].
func (n *Node) DeepCopyObject() runtime.Object {
	return &Node{TypeMeta: n.TypeMeta, ObjectMeta: *n.ObjectMeta.DeepCopy(), Allocatable: n.Allocatable.DeepCopy()}
}

// AllocatableOf returns what pods may use of a node: the values of its object, and for
// resources that the object lacks, or if it is nil, what the node itself has.
func AllocatableOf(node *Node, has corev1.ResourceList) corev1.ResourceList {
	if node == nil || len(node.Allocatable) == 0 {
		return has
	}
	all := maps.Clone(node.Allocatable)
	for name, q := range has {
		if _, said := all[name]; !said {
			all[name] = q
		}
	}
	return all
}

// allocatable returns what pods may use of this node.
func (r *resolver) allocatable() corev1.ResourceList {
	node, _ := r.objects.Get(Key{Kind: KindNode, Name: r.config.NodeName}).(*Node)
	return AllocatableOf(node, r.config.Allocatable)
}

// onThisNode returns an error if the volume's node affinity excludes this node. In a
// cluster the labels of the Node object decide, as for the kubelet. Without one the
// host name (kubernetes.io/hostname) and the labels that the operator gave the node
// decide. Other labels are missing, except for a CSI volume: the manager compares them
// with the driver's topology ([resolver.topology]).
func (r *resolver) onThisNode(pv *corev1.PersistentVolume, csi bool) error {
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return nil
	}
	if r.config.ClusterAttach {
		return r.onNode(affinity.Required)
	}
	labels := r.labels()
	if r.selects(affinity.Required, labels, csi) {
		return nil
	}
	unknown := ""
	if field, q := undecided(affinity.Required, labels, csi); field != "" && csi {
		unknown = fmt.Sprintf("; spec.nodeAffinity.required.%s.operator: found %s for %s, want %s, or no such term: of "+
			"other labels only the values are known, from the driver's topology",
			field, q.Operator, show(q.Key), corev1.NodeSelectorOpIn)
	} else if field != "" {
		unknown = fmt.Sprintf("; spec.nodeAffinity.required.%s.key: found %s, want %s, no such term, or "+
			"--node-label=%s=VALUE: other labels of the node are not known here",
			field, show(q.Key), strings.Join(slices.Sorted(maps.Keys(labels)), " or "), q.Key)
	}
	var known []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		known = append(known, key+"="+show(labels[key]))
	}
	return fmt.Errorf("spec.nodeAffinity.required: none of its terms matches this node, whose known labels are (%s)%s",
		strings.Join(known, ", "), unknown)
}

// CheckAffinity returns an error if the volume's node affinity excludes this node, judged without
// a cluster's Node. It returns nil if only the driver's topology can tell.
func (c Config) CheckAffinity(pv *corev1.PersistentVolume) error {
	c.ClusterAttach = false
	r := &resolver{config: c}
	return r.onThisNode(pv, pv.Spec.CSI != nil)
}

// labels returns the labels of this node that are known without a cluster.
func (r *resolver) labels() map[string]string {
	all := map[string]string{corev1.LabelHostname: r.config.NodeName}
	maps.Copy(all, r.config.NodeLabels)
	return all
}

// onNode returns an error if the labels of the Node object do not match.
func (r *resolver) onNode(s *corev1.NodeSelector) error {
	key := Key{Kind: KindNode, Name: r.config.NodeName}
	node, ok := r.objects.Get(key).(*Node)
	if !ok {
		if err := r.unread(key); err != nil {
			return fmt.Errorf("spec.nodeAffinity.required: %w", err)
		}
		return fmt.Errorf("spec.nodeAffinity.required: %s, whose labels decide, not found", key)
	}
	labels := map[string]string{corev1.LabelHostname: r.config.NodeName}
	maps.Copy(labels, node.Labels)
	if r.selects(s, labels, false) {
		return nil
	}
	why := ""
	for i, term := range s.NodeSelectorTerms {
		for j, q := range term.MatchExpressions {
			if !matches([]corev1.NodeSelectorRequirement{q}, labels) {
				found := "none"
				if value, has := labels[q.Key]; has {
					found = show(value)
				}
				why += fmt.Sprintf("; nodeSelectorTerms[%d].matchExpressions[%d] wants %s %s %s, and the Node has %s",
					i, j, show(q.Key), q.Operator, show(strings.Join(q.Values, ",")), found)
				break
			}
		}
	}
	return fmt.Errorf("spec.nodeAffinity.required: none of its terms matches %s%s", key, why)
}

// selects reports whether one of the terms matches this node. If later is set it
// ignores the requirements that the driver's topology decides.
func (r *resolver) selects(s *corev1.NodeSelector, labels map[string]string, later bool) bool {
	fields := map[string]string{"metadata.name": r.config.NodeName}
	return slices.ContainsFunc(s.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		expressions := term.MatchExpressions
		if later {
			expressions = slices.DeleteFunc(slices.Clone(expressions), func(q corev1.NodeSelectorRequirement) bool {
				return ofTopology(q, labels)
			})
			if slices.ContainsFunc(expressions, func(q corev1.NodeSelectorRequirement) bool {
				_,
					known := labels[q.Key]
				return !known
			}) {
				return false
			}
		}
		return len(term.MatchExpressions)+len(term.MatchFields) > 0 && matches(expressions, labels) &&
			matches(term.MatchFields, fields)
	})
}

// ofTopology reports whether the driver's topology decides a requirement: it lists
// values for a label that the node does not have.
func ofTopology(q corev1.NodeSelectorRequirement, labels map[string]string) bool {
	_, known := labels[q.Key]
	return !known && q.Operator == corev1.NodeSelectorOpIn
}

// undecided returns the first requirement about an unknown label, and its field; "" if
// there is none. For a CSI volume it skips those that the driver's topology decides.
func undecided(s *corev1.NodeSelector, labels map[string]string, csi bool) (field string,
	q corev1.NodeSelectorRequirement,
) {
	for i, term := range s.NodeSelectorTerms {
		for j, q := range term.MatchExpressions {
			if _, known := labels[q.Key]; !known && !(csi && ofTopology(q, labels)) {
				return fmt.Sprintf("nodeSelectorTerms[%d].matchExpressions[%d]", i, j), q
			}
		}
	}
	return "", q
}

// topology returns where a CSI volume is accessible, in the topology keys of its
// driver: alternatives, each with the allowed values of its keys. It is nil if the
// node affinity does not use such keys or if the Node's labels have decided. Terms
// that the node's known labels exclude are left out.
func (r *resolver) topology(pv *corev1.PersistentVolume) []map[string][]string {
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || r.config.ClusterAttach {
		return nil
	}
	var all []map[string][]string
	labels := r.labels()
	for _, term := range affinity.Required.NodeSelectorTerms {
		one := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
		if !r.selects(one, labels, true) {
			continue
		}
		place := map[string][]string{}
		for _, q := range term.MatchExpressions {
			if ofTopology(q, labels) {
				place[q.Key] = slices.Clone(q.Values)
			}
		}
		if len(place) == 0 {
			return nil
		}
		all = append(all, place)
	}
	return all
}

// matches reports whether all requirements hold, as the scheduler reads them.
func matches(requirements []corev1.NodeSelectorRequirement, labels map[string]string) bool {
	return !slices.ContainsFunc(requirements, func(q corev1.NodeSelectorRequirement) bool {
		value, has := labels[q.Key]
		switch q.Operator {
		case corev1.NodeSelectorOpIn:
			return !has || !slices.Contains(q.Values, value)
		case corev1.NodeSelectorOpNotIn:
			return has && slices.Contains(q.Values, value)
		case corev1.NodeSelectorOpExists:
			return !has
		case corev1.NodeSelectorOpDoesNotExist:
			return has
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			return !has || !compares(q, value)
		}
		return true
	})
}

func compares(q corev1.NodeSelectorRequirement, value string) bool {
	if len(q.Values) != 1 {
		return false
	}
	have, errHave := strconv.ParseInt(value, 10, 64)
	than, errThan := strconv.ParseInt(q.Values[0], 10, 64)
	if errHave != nil || errThan != nil {
		return false
	}
	return q.Operator == corev1.NodeSelectorOpGt && have > than || q.Operator == corev1.NodeSelectorOpLt && have < than
}
