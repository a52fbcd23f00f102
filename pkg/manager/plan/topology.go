package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OutOfReach says why a volume that is at one of places cannot be reached from a node
// with the topology that its driver tells; "" where it can. A key that the driver does
// not tell of cannot be compared, so the volume is not taken to be here. What a driver
// that is not up would tell is not known: it is waited for anyway.
func OutOfReach(places []map[string][]string, up bool, node map[string]string) string {
	if len(places) == 0 || !up {
		return ""
	}
	var wanted []string
	missing := map[string]bool{}
	for _, place := range places {
		var differs []string
		for _, key := range slices.Sorted(maps.Keys(place)) {
			value, known := node[key]
			if known && slices.Contains(place[key], value) {
				continue
			}
			differs = append(differs, fmt.Sprintf("%s=%s", key, strings.Join(place[key], "|")))
			if !known {
				missing[key] = true
			}
		}
		if len(differs) == 0 {
			return ""
		}
		wanted = append(wanted, strings.Join(differs, ","))
	}
	why := "the volume is out of this node's reach: it is at " + strings.Join(wanted, " or ")
	if len(node) > 0 {
		var here []string
		for _, key := range slices.Sorted(maps.Keys(node)) {
			here = append(here, key+"="+node[key])
		}
		why += ", and the driver says that the node is at " + strings.Join(here, ",")
	}
	if len(missing) > 0 {
		why += "; the driver does not report " + strings.Join(slices.Sorted(maps.Keys(missing)), ", ") +
			" of the node: take it out of the PersistentVolume's spec.nodeAffinity where it decides nothing"
	}
	return why
}
