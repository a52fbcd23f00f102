package translate

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// MigratedAnnotation is the annotation of a CSINode that lists the in-tree plugins that
// the node leaves to CSI drivers; [MigratedPlugins] returns its value.
const MigratedAnnotation = "storage.alpha.kubernetes.io/migrated-plugins"

// plugins has the provisioner names of the in-tree plugins that the library translates,
// sorted.
var plugins = [...]struct{ name, kind string }{
	{"kubernetes.io/aws-ebs", "awsElasticBlockStore"},
	{"kubernetes.io/azure-disk", "azureDisk"},
	{"kubernetes.io/azure-file", "azureFile"},
	{"kubernetes.io/cinder", "cinder"},
	{"kubernetes.io/gce-pd", "gcePersistentDisk"},
	{"kubernetes.io/portworx-volume", "portworxVolume"},
	{"kubernetes.io/vsphere-volume", "vsphereVolume"},
}

// MigratedPlugins returns the in-tree plugins of kinds, in the format of
// MigratedAnnotation.
func MigratedPlugins(kinds []string) string {
	var names []string
	for _, p := range plugins {
		if slices.Contains(kinds, p.kind) {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ",")
}

// Class returns a copy of class with the CSI driver that replaces its provisioner, and
// with that driver's parameters and topology. It returns class itself if the provisioner
// is not an in-tree plugin of one of the kinds.
func Class(class *storagev1.StorageClass, kinds []string) (out *storagev1.StorageClass, err error) {
	if !slices.ContainsFunc(plugins[:], func(p struct{ name, kind string }) bool {
		return p.name == class.Provisioner && slices.Contains(kinds, p.kind)
	}) {
		return class, nil
	}
	t := csitranslation.New()
	driver, err := t.GetCSINameFromInTreeName(class.Provisioner)
	if err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	if out, err = t.TranslateInTreeStorageClassToCSI(klog.Logger{}, class.Provisioner, class.DeepCopy()); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	out.Provisioner = driver
	return out, nil
}
