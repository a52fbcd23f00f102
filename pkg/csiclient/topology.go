package csiclient

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What a key's name and a value may be, and what may come before a key's name
// (CSI 1.13, Topology). The length of a prefix is that of a label's: the
// specification's 63 would refuse the names of some drivers.
var (
	topologyName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	topologyPrefix = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// checkTopology says what CSI forbids of a node's topology. None is no
// constraint. An empty value, which CSI forbids, is a label's all the same, and
// kubelets take it.
func checkTopology(segments map[string]string) error {
	lower := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			prefix, name = "", key
		}
		switch value := segments[key]; {
		case prefixed && !topologyPrefix.MatchString(prefix), !topologyName.MatchString(name):
			return fmt.Errorf("found key %q, want a name of 1 to 63 letters, digits, '-', '_' and '.', with or without a "+
				"domain and '/' before it", clipped(key, maxString))
		case value != "" && !topologyName.MatchString(value):
			return fmt.Errorf("%s: found %q, want 1 to 63 letters, digits, '-', '_' and '.'", key, clipped(value, maxString))
		case lower[strings.ToLower(key)] != "":
			return fmt.Errorf("found keys %s and %s, want keys that differ in more than their case", lower[strings.ToLower(key)],
				key)
		}
		lower[strings.ToLower(key)] = key
	}
	return nil
}
