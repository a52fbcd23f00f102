package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Class parameters that name secrets, less prefix and "-name" or "-namespace".
const (
	snapshotterSecret = "snapshotter-secret"
	listSecret        = "snapshotter-list-secret"
)

// newSnapshotSpec is what CreateSnapshot is to be called with for w, or why it cannot be.
func newSnapshotSpec(w Snapshot) (snapshotSpec, string) {
	c := w.Class
	s := snapshotSpec{
		Class: c.Name, Driver: c.Driver, Parameters: maps.Clone(c.Parameters), Reclaim: c.policy(), Claim: w.Claim,
		Volume: w.Volume, Mode: w.Mode, Freeze: w.Freeze,
	}
	switch name := snapshotName(w.UID); {
	case w.UID == "":
		return snapshotSpec{}, "it has no UID"
	case len(name) > maxString:
		return snapshotSpec{}, fmt.Sprintf("its UID is %d bytes long; a snapshot's name has at most %d", len(w.UID),
			maxString)
	}
	named := map[string]state.SecretRef{}
	for _, param := range []string{snapshotterSecret, listSecret} {
		var problem string
		if named[param], problem = snapshotSecret(w, param); problem != "" {
			return snapshotSpec{}, problem
		}
		delete(s.Parameters, reserved+param+"-name")
		delete(s.Parameters, reserved+param+"-namespace")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Parameters)) {
		if strings.HasPrefix(key, reserved) {
			return snapshotSpec{}, fmt.Sprintf("its class %s has the parameter %s, which is reserved and has no meaning here",
				c.Name, key)
		}
	}
	if c.Metadata {
		s.Parameters = with(s.Parameters, map[string]string{
			"volumesnapshot/name": w.Name, "volumesnapshot/namespace": w.Namespace,
			"volumesnapshotcontent/name": contentName(w.UID),
		})
	}
	s.Secret, s.List = named[snapshotterSecret], named[listSecret]
	return s, ""
}

// snapshotSecret is the secret that the class names for w by two parameters; none where it
// has neither. The templates are external-snapshotter's.
func snapshotSecret(w Snapshot, param string) (state.SecretRef, string) {
	keys := []string{reserved + param + "-name", reserved + param + "-namespace"}
	values := make([]string, len(keys))
	replacer := strings.NewReplacer("${volumesnapshotcontent.name}", contentName(w.UID),
		"${volumesnapshot.name}", w.Name, "${volumesnapshot.namespace}", w.Namespace)
	has := 0
	for i, key := range keys {
		template, ok := w.Class.Parameters[key]
		if !ok {
			continue
		}
		has++
		values[i] = replacer.Replace(template)
		if values[i] == "" || strings.Contains(values[i], "${") {
			return state.SecretRef{}, fmt.Sprintf("parameter %s of its class %s: found %q, want a name, or one with "+
				"${volumesnapshotcontent.name}, ${volumesnapshot.namespace} and ${volumesnapshot.name}", key, w.Class.Name,
				template)
		}
	}
	switch has {
	case 0:
		return state.SecretRef{}, ""
	case 1:
		return state.SecretRef{}, fmt.Sprintf("its class %s names one of %s and %s without the other", w.Class.Name, keys[0],
			keys[1])
	}
	return state.SecretRef{Name: values[0], Namespace: values[1]}, ""
}
