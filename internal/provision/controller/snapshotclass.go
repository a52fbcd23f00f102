package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Class parameters that name secrets, without the prefix and the suffix "-name" or "-namespace".
const (
	snapshotterSecret = "snapshotter-secret"
	listSecret        = "snapshotter-list-secret"
	groupSecret       = "group-snapshotter-secret"
	groupGetSecret    = "group-snapshotter-get-secret"
)

// classReader reads the parameters of a class for one snapshot or group snapshot.
type classReader struct {
	SnapshotClass
	// kind is the kind of the object in lower case ("volumesnapshot"), from which
	// external-snapshotter forms the names of variables and parameters.
	kind string
	// of is the object's key, content the name of its content.
	of      Key
	content string
}

// newSnapshotSpec returns the CreateSnapshot request for w, or why there is none.
func newSnapshotSpec(w Snapshot) (snapshotSpec, string) {
	if problem := checkUID(w.UID, w.snapshotName()); problem != "" {
		return snapshotSpec{}, problem
	}
	c := classReader{w.Class, "volumesnapshot", w.Key, w.contentName()}
	s := snapshotSpec{
		Class: c.Name, Driver: c.Driver, Reclaim: c.policy(), Claim: w.Claim, Volume: w.Volume, Mode: w.Mode,
		Freeze: w.Freeze,
	}
	var problem string
	if s.Secret, problem = c.secret(snapshotterSecret); problem != "" {
		return snapshotSpec{}, problem
	}
	if s.List, problem = c.secret(listSecret); problem != "" {
		return snapshotSpec{}, problem
	}
	if s.Parameters, problem = c.parameters(); problem != "" {
		return snapshotSpec{}, problem
	}
	return s, ""
}

// newGroupSpec returns the request for a group snapshot for w, or why there is none. each is
// [groupSpec.Each].
func newGroupSpec(w Group, each bool) (groupSpec, string) {
	if problem := checkUID(w.UID, w.groupName()); problem != "" {
		return groupSpec{}, problem
	}
	c := classReader{w.Class, "volumegroupsnapshot", w.Key, w.contentName()}
	s := groupSpec{Class: c.Name, Driver: c.Driver, Reclaim: c.policy(), Each: each, Freeze: w.Freeze}
	var problem string
	if s.Secret, problem = c.secret(groupSecret); problem != "" {
		return groupSpec{}, problem
	}
	if s.Get, problem = c.secret(groupGetSecret); problem != "" {
		return groupSpec{}, problem
	}
	if s.Parameters, problem = c.parameters(); problem != "" {
		return groupSpec{}, problem
	}
	return s, ""
}

// checkUID says what is wrong with the UID from which the snapshot's name is formed.
func checkUID(uid, name string) string {
	switch {
	case uid == "":
		return "it has no UID"
	case len(name) > maxString:
		return fmt.Sprintf("its UID is %d bytes long; a snapshot's name has at most %d", len(uid), maxString)
	}
	return ""
}

// parameters returns the class's parameters for the driver: all but those that name secrets, of snapshots and of groups
// alike: external-snapshotter strips both from the classes of both.
func (c classReader) parameters() (map[string]string, string) {
	parameters := maps.Clone(c.Parameters)
	for _, param := range []string{snapshotterSecret, listSecret, groupSecret, groupGetSecret} {
		delete(parameters, reserved+param+"-name")
		delete(parameters, reserved+param+"-namespace")
	}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if strings.HasPrefix(key, reserved) {
			return nil, fmt.Sprintf("its class %s has the parameter %s, which is reserved and has no meaning here", c.Name, key)
		}
	}
	if c.Metadata {
		parameters = withMetadata(parameters, map[string]string{
			c.kind + "/name": c.of.Name, c.kind + "/namespace": c.of.Namespace, c.kind + "content/name": c.content,
		})
	}
	return parameters, ""
}

// secret returns the secret that the class names by two parameters, or the zero value if it has
// neither. The variables are external-snapshotter's.
func (c classReader) secret(param string) (state.SecretRef, string) {
	keys := []string{reserved + param + "-name", reserved + param + "-namespace"}
	values := make([]string, len(keys))
	content, name, namespace := "${"+c.kind+"content.name}", "${"+c.kind+".name}", "${"+c.kind+".namespace}"
	replacer := strings.NewReplacer(content, c.content, name, c.of.Name, namespace, c.of.Namespace)
	has := 0
	for i, key := range keys {
		template, ok := c.Parameters[key]
		if !ok {
			continue
		}
		has++
		values[i] = replacer.Replace(template)
		if values[i] == "" || strings.Contains(values[i], "${") {
			return state.SecretRef{}, fmt.Sprintf("parameter %s of its class %s: found %q, want a name, or one with %s, %s "+
				"and %s", key, c.Name, template, content, namespace, name)
		}
	}
	switch has {
	case 0:
		return state.SecretRef{}, ""
	case 1:
		return state.SecretRef{}, fmt.Sprintf("its class %s names one of %s and %s without the other", c.Name, keys[0],
			keys[1])
	}
	return state.SecretRef{Name: values[0], Namespace: values[1]}, ""
}
