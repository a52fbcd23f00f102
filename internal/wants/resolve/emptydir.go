package resolve

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// maxDirMode is the greatest mode of an emptyDir: all permissions and the sticky bit.
const maxDirMode = 0o1777

// podEmptyDir resolves an emptyDir. It lowers sizeLimit to what the whole pod may use,
// and adds to a medium of HugePages the page size that the pod's containers ask for.
func (r *resolver) podEmptyDir(v *corev1.Volume, field string) (state.VolumeWant, error) {
	src := v.EmptyDir
	if src == nil {
		src = &corev1.EmptyDirVolumeSource{}
	}
	if !knownMedium(src.Medium) {
		return state.VolumeWant{}, r.fault(Fault{
			field + ".medium", string(src.Medium),
			`"", Memory, HugePages or HugePages-<size>`,
		})
	}
	if src.SizeLimit != nil && src.SizeLimit.Sign() < 0 {
		return state.VolumeWant{}, r.fault(Fault{field + ".sizeLimit", src.SizeLimit.String(), "zero or more"})
	}
	if src.Mode != nil && (*src.Mode < 0 || *src.Mode > maxDirMode) {
		return state.VolumeWant{}, r.fault(Fault{
			field + ".mode", strconv.FormatInt(int64(*src.Mode), 10),
			"0 to 01777 (1023 in decimal)",
		})
	}
	src = src.DeepCopy()
	switch src.Medium {
	case corev1.StorageMediumDefault:
		src.SizeLimit = smaller(src.SizeLimit, podLimit(r.pod, corev1.ResourceEphemeralStorage, declaredOnly))
	case corev1.StorageMediumMemory:
		src.SizeLimit = smaller(src.SizeLimit, podLimit(r.pod, corev1.ResourceMemory, allOrNone))
		// In a cluster, allocatable memory also bounds a volume without a limit, as with the
		// kubelet. Without one no memory is reserved for the node, so the kernel's default applies.
		if all, ok := r.allocatable()[corev1.ResourceMemory]; ok && (src.SizeLimit != nil || r.config.ClusterAttach) {
			src.SizeLimit = smaller(src.SizeLimit, &all)
		}
	default:
		medium, err := r.hugePages(src.Medium, field+".medium")
		if err != nil {
			return state.VolumeWant{}, err
		}
		src.Medium = medium
	}
	w, err := r.builtin(kind.EmptyDir, v.Name, src)
	if src.Medium == corev1.StorageMediumMemory && src.SizeLimit != nil {
		w.SizeBytes = src.SizeLimit.Value() // the volume grows if this exceeds its size
	}
	return w, err
}

func knownMedium(m corev1.StorageMedium) bool {
	switch m {
	case corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages:
		return true
	}
	size, ok := strings.CutPrefix(string(m), string(corev1.StorageMediumHugePagesPrefix))
	if !ok {
		return false
	}
	q, err := resource.ParseQuantity(size)
	return err == nil && q.Sign() > 0
}

// hugePages returns the medium with the size of its pages. The pod must ask for pages
// of that size, because its cgroup gets no others.
func (r *resolver) hugePages(medium corev1.StorageMedium, field string) (corev1.StorageMedium, error) {
	var asked []resource.Quantity
	ask := func(in corev1.ResourceList) {
		for name, q := range in {
			text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			size, err := resource.ParseQuantity(text)
			same := func(a resource.Quantity) bool { return a.Cmp(size) == 0 }
			if ok && err == nil && q.Sign() > 0 && !slices.ContainsFunc(asked, same) {
				asked = append(asked, size)
			}
		}
	}
	if own := r.pod.Spec.Resources; own != nil {
		ask(own.Requests)
		ask(own.Limits)
	}
	for _, c := range slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers) {
		ask(c.Resources.Requests)
		ask(c.Resources.Limits) // a missing request defaults to the limit
	}
	slices.SortFunc(asked, func(a, b resource.Quantity) int { return a.Cmp(b) })
	if text, sized := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); sized {
		size, err := resource.ParseQuantity(text)
		if err == nil && slices.ContainsFunc(asked, func(a resource.Quantity) bool { return a.Cmp(size) == 0 }) {
			return medium, nil
		}
		return "", r.fault(Fault{
			field, string(medium),
			"pages of a size that a container asks for; there " + listSizes(asked),
		})
	}
	if len(asked) != 1 {
		return "", r.fault(Fault{
			field, string(medium),
			"containers that ask for pages of one size, where there " + listSizes(asked) + "; or HugePages-<size>",
		})
	}
	return corev1.StorageMedium(string(corev1.StorageMediumHugePagesPrefix) + asked[0].String()), nil
}

func listSizes(sizes []resource.Quantity) string {
	if len(sizes) == 0 {
		return "is none (resources.limits hugepages-<size>)"
	}
	var names []string
	for _, s := range sizes {
		names = append(names, s.String())
	}
	return "are " + strings.Join(names, " and ")
}

// smaller returns the smaller of two limits. A limit that is nil or zero does not count.
func smaller(a, b *resource.Quantity) *resource.Quantity {
	switch {
	case b == nil || b.Sign() <= 0:
		return a
	case a == nil || a.Sign() <= 0 || b.Cmp(*a) < 0:
		return b
	}
	return a
}

// The effect of a container without a limit, both as in the kubelet. For memory the
// pod then has no limit, as its cgroup has none (allOrNone). For ephemeral-storage the
// container counts as zero, because eviction sums the declared limits (declaredOnly).
const (
	allOrNone    = true
	declaredOnly = false
)

// podLimit returns how much of a resource the whole pod may use, or nil: the pod's own
// limit, else the sum over containers that run at the same time. Init containers run
// one after another, together with the sidecars that started before them.
func podLimit(pod *corev1.Pod, name corev1.ResourceName, needAll bool) *resource.Quantity {
	if own := pod.Spec.Resources; own != nil {
		if q, ok := own.Limits[name]; ok && name == corev1.ResourceMemory {
			return &q
		}
	}
	missing := func(c corev1.Container) bool { q := c.Resources.Limits[name]; return q.Sign() <= 0 }
	if needAll && (slices.ContainsFunc(pod.Spec.Containers, missing) || slices.ContainsFunc(pod.Spec.InitContainers,
		missing)) {
		return nil
	}
	var together, most resource.Quantity
	for _, c := range pod.Spec.InitContainers {
		limit := c.Resources.Limits[name]
		limit.Add(together)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			together = limit
		}
		if limit.Cmp(most) > 0 {
			most = limit
		}
	}
	for _, c := range pod.Spec.Containers {
		together.Add(c.Resources.Limits[name])
	}
	if together.Cmp(most) > 0 {
		most = together
	}
	if most.Sign() <= 0 {
		return nil
	}
	most.Add(pod.Spec.Overhead[name])
	return &most
}
