package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OutOfReach says why a volume that is at one of places cannot be reached from a
// node with the topology that its driver tells; "" where it can, or where that is
// not known. A key that the driver does not tell of is a label of somebody else.
func OutOfReach(places []map[string][]string, node map[string]string) string {
	if len(places) == 0 || len(node) == 0 {
		return ""
	}
	var wanted []string
	for _, place := range places {
		var differs []string
		for _, key := range slices.Sorted(maps.Keys(place)) {
			if value, known := node[key]; known && !slices.Contains(place[key], value) {
				differs = append(differs, fmt.Sprintf("%s=%s", key, strings.Join(place[key], "|")))
			}
		}
		if len(differs) == 0 {
			return ""
		}
		wanted = append(wanted, strings.Join(differs, ","))
	}
	var here []string
	for _, key := range slices.Sorted(maps.Keys(node)) {
		here = append(here, key+"="+node[key])
	}
	return "the volume is out of this node's reach: it is at " + strings.Join(wanted, " or ") + ", and the driver says that the node is at " + strings.Join(here, ",")
}
