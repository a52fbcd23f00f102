package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// asPod converts a PersistentVolume's source to a pod's, as far as checkNames reads it.
// Two kinds have different types in the two.
func asPod(s corev1.PersistentVolumeSource) corev1.VolumeSource {
	out := corev1.VolumeSource{
		AWSElasticBlockStore: s.AWSElasticBlockStore, AzureDisk: s.AzureDisk, GCEPersistentDisk: s.GCEPersistentDisk,
		PortworxVolume: s.PortworxVolume, VsphereVolume: s.VsphereVolume,
	}
	if f := s.AzureFile; f != nil {
		out.AzureFile = &corev1.AzureFileVolumeSource{SecretName: f.SecretName, ShareName: f.ShareName}
	}
	if c := s.Cinder; c != nil {
		out.Cinder = &corev1.CinderVolumeSource{VolumeID: c.VolumeID}
	}
	return out
}

// checkNames returns an error if the field that names the volume is empty: the library
// would make a handle that names nothing.
func checkNames(s corev1.VolumeSource) error {
	missing := func(found, field, want string) error {
		if found != "" {
			return nil
		}
		return refuse(field, found, want)
	}
	switch {
	case s.AWSElasticBlockStore != nil:
		return missing(s.AWSElasticBlockStore.VolumeID, "volumeID", "the volume's id")
	case s.AzureDisk != nil:
		return missing(s.AzureDisk.DataDiskURI, "diskURI", "the disk's URI")
	case s.AzureFile != nil:
		if err := missing(s.AzureFile.SecretName, "secretName", "the name of the Secret of the storage account"); err != nil {
			return err
		}
		return missing(s.AzureFile.ShareName, "shareName", "the name of the share")
	case s.Cinder != nil:
		return missing(s.Cinder.VolumeID, "volumeID", "the volume's id")
	case s.GCEPersistentDisk != nil:
		return missing(s.GCEPersistentDisk.PDName, "pdName", "the disk's name")
	case s.PortworxVolume != nil:
		return missing(s.PortworxVolume.VolumeID, "volumeID", "the volume's id")
	case s.VsphereVolume != nil:
		return missing(s.VsphereVolume.VolumePath, "volumePath", "the path of the volume's vmdk")
	}
	return nil
}

// atField prepends the field that an error of the library is about. For each kind, the
// library checks at most one field.
func atField(s corev1.VolumeSource, err error) error {
	switch {
	case s.AWSElasticBlockStore != nil:
		return fmt.Errorf("volumeID: %w", err)
	case s.AzureDisk != nil:
		return fmt.Errorf("kind: %w", err)
	case s.AzureFile != nil:
		return fmt.Errorf("secretNamespace: %w", err)
	case s.GCEPersistentDisk != nil:
		return fmt.Errorf("metadata.labels[%s]: %w", corev1.LabelTopologyZone, err)
	}
	return err
}
