package content

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resource returns a container's limit or request, divided by the divisor and rounded up.
func (r Reader) resource(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
	c := container(pod, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("containerName: the pod has no container %.64q", ref.ContainerName)
	}
	which, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	if which != "limits" && which != "requests" || !isKnownResource(resourceName) {
		return "", fmt.Errorf("resource: found %.253q, want limits or requests, a dot, and cpu, memory, ephemeral-storage "+
			"or hugepages-SIZE: %w", ref.Resource, ErrField)
	}
	if ref.Divisor.Sign() < 0 {
		return "", fmt.Errorf("divisor: found %s, want more than zero", ref.Divisor.String())
	}
	return quotient(r.quantity(c, which, resourceName), ref.Divisor, resourceName), nil
}

func isKnownResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// container returns the pod's container or init container with that name.
func container(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// quantity returns a request, which defaults to the limit as in an API server, or a limit, which
// defaults to the node's allocatable amount.
func (r Reader) quantity(c *corev1.Container, which string, name corev1.ResourceName) resource.Quantity {
	if which == "requests" {
		if q, ok := c.Resources.Requests[name]; ok {
			return q
		}
		return c.Resources.Limits[name]
	}
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	return r.Allocatable[name]
}

func quotient(q, divisor resource.Quantity, name corev1.ResourceName) string {
	value, by := q.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		value, by = q.MilliValue(), divisor.MilliValue()
		if divisor.IsZero() {
			by = 1000
		}
	}
	if by <= 0 {
		by = 1
	}
	n := value / by
	if value%by != 0 {
		n++
	}
	return strconv.FormatInt(n, 10)
}
