package fakeapi

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// filled returns the object with the defaults that an API server sets and that a node needs.
func filled(obj runtime.Object) runtime.Object {
	d, ok := obj.(*storagev1.CSIDriver)
	if !ok || d.Spec.FSGroupPolicy != nil {
		return obj
	}
	d = d.DeepCopy()
	byDefault := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	d.Spec.FSGroupPolicy = &byDefault
	return d
}
