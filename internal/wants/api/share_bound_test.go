package api

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWhatIsSharedIsBounded(t *testing.T) {
	var s shared
	for n := range 3 * maxShared {
		s.list(corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(int64(n), resource.BinarySI)})
		if len(s.lists) > maxShared {
			t.Fatalf("%d lists are kept", len(s.lists))
		}
	}
}
