package harness

import (
	"fmt"
	"strings"
)

// Volume is one volume of a pod: its name and its source as YAML.
type Volume struct {
	Name, Source string
	Block        bool
	ReadOnly     bool
}

// FromClaim returns a volume that uses the claim.
func FromClaim(name, claim string) Volume {
	return Volume{Name: name, Source: fmt.Sprintf("persistentVolumeClaim: {claimName: %s}", claim)}
}

// Pod returns a pod with one container that uses all of the volumes.
func Pod(name string, volumes ...Volume) string { return GroupPod(name, "", volumes...) }

// GroupPod returns a pod with a security context.
func GroupPod(name, security string, volumes ...Volume) string {
	var specs, mounts, devices strings.Builder
	for _, v := range volumes {
		fmt.Fprintf(&specs, "  - {name: %s, %s}\n", v.Name, v.Source)
		if v.Block {
			fmt.Fprintf(&devices, "    - {name: %s, devicePath: /dev/%s}\n", v.Name, v.Name)
			continue
		}
		fmt.Fprintf(&mounts, "    - {name: %s, mountPath: /%s, readOnly: %v}\n", v.Name, v.Name, v.ReadOnly)
	}
	doc := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  containers:\n  - name: main\n    image: none\n", name, security)
	for _, list := range []struct{ field, items string }{
		{"    volumeMounts:\n", mounts.String()}, {"    volumeDevices:\n", devices.String()}, {"  volumes:\n", specs.String()},
	} {
		if list.items != "" {
			doc += list.field + list.items
		}
	}
	return doc
}
