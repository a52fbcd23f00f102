package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// reserved is the prefix of class parameters that are not for the driver.
const reserved = "csi.storage.k8s.io/"

// maxString is the limit for a string field (CSI 1.13, "Size Limits").
const maxString = 128

// newSpec returns the CreateVolume request for c, or why there is none.
func newSpec(c Claim, f facts) (spec, held) {
	s := spec{
		Class: c.Class.Name, Driver: c.Class.Provisioner,
		SizeBytes: c.SizeBytes, LimitBytes: c.LimitBytes,
		AccessModes: c.AccessModes, EachMode: true, Mode: c.Mode, MountOptions: c.Class.MountOptions, Reclaim: Delete,
	}
	if c.Class.Retain {
		s.Reclaim = Retain
	}
	if problem := checkClaim(c); problem != "" {
		return spec{}, held{reason: problem}.on(state.BadClaim, "")
	}
	badClass := func(problem string) (spec, held) {
		return spec{}, held{reason: problem}.on(state.BadClass, c.Class.Name)
	}
	var problem string
	if s.Parameters, s.FSType, problem = splitParameters(c.Class); problem != "" {
		return badClass(problem)
	}
	if s.FSType == "" && c.Mode == state.Filesystem {
		s.FSType = c.Class.FSType
	}
	if c.Class.Metadata {
		// A driver may make the volume's handle from the claim's name. No claim's name has an underscore.
		s.Parameters = withMetadata(s.Parameters, map[string]string{
			"pvc/name": c.Name + c.numbered("_"), "pvc/namespace": c.Namespace, "pv/name": c.volumeName(),
		})
	}
	if s.Secrets, problem = classSecrets(c); problem != "" {
		return badClass(problem)
	}
	if c.Attributes.Class != "" {
		if h := c.Attributes.check(s.Driver, f.Driver.caps); h.waits() {
			h.refused = false // another driver may be registered under the name
			return spec{}, h
		}
		s.Attributes = c.Attributes.Attributes
	}
	var h held
	if s.Source, h = contentSource(c, f); h.waits() {
		return spec{}, h
	}
	if problem := checkTopology(c.Class, f.Driver); problem != "" {
		return badClass(problem)
	}
	if f.Driver.caps.Topology && len(f.Driver.Topology) > 0 {
		s.Topology = f.Driver.Topology
	}
	return s, held{}
}

// checkTopology says why this node is in none of the topologies that the class allows. It returns
// "" if the node is in one, or if the class allows any. A volume is always made where this node is.
func checkTopology(c Class, d driverFacts) string {
	var allowed []string
	for _, place := range c.Topologies {
		var wanted []string
		here := true
		for _, key := range slices.Sorted(maps.Keys(place)) {
			value, known := d.Topology[key]
			here = here && known && slices.Contains(place[key], value)
			wanted = append(wanted, key+"="+strings.Join(place[key], "|"))
		}
		if here {
			return ""
		}
		allowed = append(allowed, strings.Join(wanted, ","))
	}
	if len(allowed) == 0 {
		return ""
	}
	var here []string
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		here = append(here, key+"="+d.Topology[key])
	}
	if len(here) == 0 {
		here = []string{"not reported by driver " + string(c.Provisioner)}
	}
	return fmt.Sprintf("its class %s has allowedTopologies %s, and this node's topology is %s", c.Name,
		strings.Join(allowed, " or "), strings.Join(here, ","))
}

func checkClaim(c Claim) string {
	switch {
	case c.UID == "":
		return "it has no UID"
	case len(c.volumeName()) > maxString:
		return fmt.Sprintf("its UID is %d bytes long; a volume's name has at most %d", len(c.UID), maxString)
	case c.SizeBytes <= 0:
		return fmt.Sprintf("it asks for %d bytes", c.SizeBytes)
	case c.LimitBytes < 0 || c.LimitBytes > 0 && c.LimitBytes < c.SizeBytes:
		return fmt.Sprintf("its limit of %d bytes is below the %d that it asks for", c.LimitBytes, c.SizeBytes)
	case len(c.AccessModes) == 0:
		return "it names no access mode"
	case c.Mode != state.Filesystem && c.Mode != state.Block:
		return fmt.Sprintf("its volumeMode %q is not one of Filesystem, Block", c.Mode)
	}
	for _, m := range c.AccessModes {
		if _, err := accessMode([]state.AccessMode{m}, false); err != nil {
			return fmt.Sprintf("its access mode %q is not known", m)
		}
		if m == state.ReadWriteOncePod && len(c.AccessModes) > 1 {
			return "access mode ReadWriteOncePod cannot be combined with others"
		}
	}
	return ""
}

// numbered returns the number of the claim's volume after a separator; "" for the first.
func (c Claim) numbered(separator string) string {
	if c.number <= 1 {
		return ""
	}
	return separator + strconv.Itoa(c.number)
}

// isFSType reports whether a class's parameter is the file system type of its volumes: the reserved one, or an
// older one, which the driver gets too (external-provisioner).
func isFSType(parameter string) bool {
	return parameter == reserved+"fstype" || strings.ToLower(parameter) == "fstype"
}

// splitParameters splits a class's parameters into the driver's own and the file system type.
func splitParameters(c Class) (params map[string]string, fsType, problem string) {
	params = maps.Clone(c.Parameters)
	var named string
	for _, key := range slices.Sorted(maps.Keys(c.Parameters)) {
		if isFSType(key) {
			if named != "" {
				return nil, "", fmt.Sprintf("its class %s has the parameters %s and %s; want one of them", c.Name, named, key)
			}
			named, fsType = key, c.Parameters[key]
		}
		name, ok := strings.CutPrefix(key, reserved)
		if !ok {
			continue
		}
		switch {
		case name == "fstype":
		case !isSecretParameter(name):
			return nil, "", fmt.Sprintf("its class %s has the parameter %s, which is reserved and has no meaning here", c.Name,
				key)
		}
		delete(params, key)
	}
	return params, fsType, ""
}

// withMetadata returns params with reserved parameters added, which metadata has without their
// prefix.
func withMetadata(params, metadata map[string]string) map[string]string {
	params = maps.Clone(params)
	if params == nil {
		params = map[string]string{}
	}
	for name, value := range metadata {
		params[reserved+name] = value
	}
	return params
}

// contentSource returns the content source of c as handles, or why it is not available.
func contentSource(c Claim, f facts) (source, held) {
	problem := held{reason: f.Source.Problem}
	switch {
	case c.Source == nil:
		return source{}, held{}
	case c.Source.Unknown != "":
		return source{}, held{reason: c.Source.Unknown}.on(state.BadClaim, "")
	case (c.Source.SnapshotHandle != "" || c.Source.ofSnapshot()) && !f.Driver.caps.Snapshot:
		return source{}, heldf("driver %s cannot make volumes from snapshots (it has no CREATE_DELETE_SNAPSHOT)",
			c.Class.Provisioner).on(state.DriverUnable, string(c.Class.Provisioner))
	case c.Source.SnapshotHandle != "":
		return source{Snapshot: c.Source.SnapshotHandle}, held{}
	case c.Source.ofSnapshot() && f.Source.Problem != "":
		return source{}, problem.on(state.NoSnapshot, c.Source.Snapshot.String())
	case c.Source.ofSnapshot():
		return source{Snapshot: f.Source.Handle}, held{}
	case !f.Driver.caps.Clone:
		return source{}, heldf("driver %s cannot clone volumes (it has no CLONE_VOLUME)",
			c.Class.Provisioner).on(state.DriverUnable, string(c.Class.Provisioner))
	case f.Source.Problem != "":
		return source{}, problem.on(state.NoSource, c.Source.Claim.String())
	}
	return source{Claim: c.Source.Claim, Volume: f.Source.Handle}, held{}
}
