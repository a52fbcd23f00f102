package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OutOfReach says why a volume at one of places is not accessible from the node, whose
// topology the driver reports as node; "" if it is. A key that the driver does not report
// cannot match. It also returns "" while the driver is down: its topology is then unknown,
// and the volume waits for it anyway.
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
	why := "the volume is not accessible from this node: it is at " + strings.Join(wanted, " or ")
	if len(node) > 0 {
		var here []string
		for _, key := range slices.Sorted(maps.Keys(node)) {
			here = append(here, key+"="+node[key])
		}
		why += ", and the driver reports that the node is at " + strings.Join(here, ",")
	}
	if len(missing) > 0 {
		why += "; the driver does not report " + strings.Join(slices.Sorted(maps.Keys(missing)), ", ") +
			" for the node: if that does not matter, remove it from the PersistentVolume's spec.nodeAffinity"
	}
	return why
}
