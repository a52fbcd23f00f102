package resolve

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// CheckChange returns what is wrong with replacing an object by another one of
// its key: an immutable Secret or ConfigMap keeps its data, and stays immutable.
func CheckChange(was, is runtime.Object) []Fault {
	const want = "what it was, since the object is immutable; delete it first"
	var faults []Fault
	differ := func(field string, same bool) {
		if !same {
			faults = append(faults, Fault{field, "other content", want})
		}
	}
	switch old := was.(type) {
	case *corev1.ConfigMap:
		if now, ok := is.(*corev1.ConfigMap); ok && isTrue(old.Immutable) {
			differ("data", maps.Equal(old.Data, now.Data))
			differ("binaryData", equality.Semantic.DeepEqual(old.BinaryData, now.BinaryData))
			differ("immutable", isTrue(now.Immutable))
		}
	case *corev1.Secret:
		if now, ok := is.(*corev1.Secret); ok && isTrue(old.Immutable) {
			differ("data", equality.Semantic.DeepEqual(old.Data, now.Data))
			differ("immutable", isTrue(now.Immutable))
		}
	}
	return faults
}

func isTrue(b *bool) bool { return b != nil && *b }
