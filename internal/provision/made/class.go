package made

import (
	"fmt"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// class is a VolumeSnapshotClass or VolumeGroupSnapshotClass.
type class struct {
	controller.SnapshotClass
	isDefault bool
}

func snapshotClasses(list []*snapshotv1.VolumeSnapshotClass) (all []class) {
	for _, c := range list {
		all = append(all, newClass(&c.ObjectMeta, resolve.DefaultSnapshotClass, c.Driver, c.DeletionPolicy, c.Parameters))
	}
	return all
}

func groupClasses(list []*groupv1.VolumeGroupSnapshotClass) (all []class) {
	for _, c := range list {
		all = append(all,
			newClass(&c.ObjectMeta, resolve.DefaultGroupSnapshotClass, c.Driver, c.DeletionPolicy, c.Parameters))
	}
	return all
}

func newClass(m *metav1.ObjectMeta, defaults, driver string, policy snapshotv1.DeletionPolicy,
	parameters map[string]string,
) class {
	return class{
		isDefault: m.Annotations[defaults] == "true",
		SnapshotClass: controller.SnapshotClass{
			Name: m.Name, Driver: state.DriverName(driver), Parameters: parameters,
			Retain:   policy == snapshotv1.VolumeSnapshotContentRetain,
			Metadata: m.Annotations[resolve.ExtraCreateMetadata] == "true",
		},
	}
}

// chooseClass returns the class for a snapshot by a driver: the class named in the field or, if
// none is named, the driver's default class, or a class without parameters if the driver has no
// default.
func chooseClass(field, named, driver string, classes []class) (class controller.SnapshotClass, refused string) {
	refuse := func(format string, args ...any) (controller.SnapshotClass, string) {
		return controller.SnapshotClass{Name: named}, fmt.Sprintf(format, args...)
	}
	var defaults []string
	class.Driver = state.DriverName(driver)
	for _, c := range classes {
		switch {
		case named != "" && c.Name == named && c.Driver != state.DriverName(driver):
			return refuse("its class %s is of driver %s, and its volume of driver %s", named, c.Driver, driver)
		case named != "" && c.Name == named:
			return c.SnapshotClass, ""
		case named == "" && c.Driver == state.DriverName(driver) && c.isDefault:
			defaults, class = append(defaults, c.Name), c.SnapshotClass
		}
	}
	switch {
	case named != "":
		return refuse("%s: found %s, but there is no such class", field, named)
	case len(defaults) > 1:
		return refuse("it names no class, and driver %s has several default classes: %s", driver,
			strings.Join(defaults, ", "))
	}
	return class, ""
}
