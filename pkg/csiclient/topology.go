package csiclient

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// topologyName matches the name in a key, and a value; topologyPrefix matches a key's
// prefix (CSI 1.13, Topology). A prefix may be as long as that of a label: the
// specification's 63 bytes would refuse the names of some drivers. The lengths are not in
// the expressions, which would then cost each start of the program a quarter of a
// millisecond.
var (
	topologyName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	topologyPrefix = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
)

const (
	maxTopologyName   = 63
	maxTopologyPrefix = 253
)

func isTopologyName(s string) bool { return len(s) <= maxTopologyName && topologyName.MatchString(s) }

func isTopologyPrefix(s string) bool {
	return len(s) <= maxTopologyPrefix && topologyPrefix.MatchString(s)
}

// checkTopology returns an error if CSI forbids a node's topology. An empty topology is
// allowed, and means no constraint. An empty value is allowed although CSI forbids it,
// because labels may be empty and kubelets accept it.
func checkTopology(segments map[string]string) error {
	lower, size := map[string]string{}, 0
	for key, value := range segments {
		if size += len(key) + len(value); size > maxMap { // each becomes a label of the Node
			return fmt.Errorf("found more than %d bytes in %d keys, want at most that (CSI 1.13, Size Limits)", maxMap,
				len(segments))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			prefix, name = "", key
		}
		switch value := segments[key]; {
		case prefixed && !isTopologyPrefix(prefix), !isTopologyName(name):
			return fmt.Errorf("found key %q, want a name of 1 to 63 letters, digits, '-', '_' and '.', with or without a "+
				"domain and '/' before it", clipped(key, maxString))
		case value != "" && !isTopologyName(value):
			return fmt.Errorf("%s: found %q, want 1 to 63 letters, digits, '-', '_' and '.'", key, clipped(value, maxString))
		case lower[strings.ToLower(key)] != "":
			return fmt.Errorf("found keys %s and %s, want keys that differ in more than their case", lower[strings.ToLower(key)],
				key)
		}
		lower[strings.ToLower(key)] = key
	}
	return nil
}
