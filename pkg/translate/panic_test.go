package translate

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The author of a pod can write something that makes the library panic.
func TestPanicOfTheLibraryIsAnError(t *testing.T) {
	for name, f := range map[string]func() (*corev1.PersistentVolume, error){
		"panic":     func() (*corev1.PersistentVolume, error) { panic("assignment to entry in nil map") },
		"no source": func() (*corev1.PersistentVolume, error) { return &corev1.PersistentVolume{}, nil },
	} {
		if pv, err := recovered(f); !errors.Is(err, errPanic) || pv != nil {
			t.Errorf("%s: got %v, %v", name, pv, err)
		}
	}
}
