package plan

import "testing"

// Faults: A138.
func TestWhatIsOutOfReach(t *testing.T) {
	type at = map[string][]string
	node := map[string]string{"zone": "a", "rack": "7"}
	for name, c := range map[string]struct {
		places []map[string][]string
		node   map[string]string
		want   string
	}{
		"anywhere": {nil, node, ""},
		"no topology at all": {
			[]map[string][]string{at{"zone": {"b"}}},
			nil,
			"the volume is not accessible from this node: it is at zone=b; the driver does not report zone for the node: if that does not matter, remove it from the PersistentVolume's spec.nodeAffinity",
		},
		"here":        {[]map[string][]string{at{"zone": {"b", "a"}, "rack": {"7"}}}, node, ""},
		"one of them": {[]map[string][]string{at{"zone": {"b"}}, at{"zone": {"a"}}}, node, ""},
		"a key it does not tell": {
			[]map[string][]string{at{"zone": {"a"}, "region": {"eu"}, "arch": {"arm64"}}},
			node,
			"the volume is not accessible from this node: it is at arch=arm64,region=eu, and the driver reports that the node is at rack=7,zone=a; the driver does not report arch, region for the node: if that does not matter, remove it from the PersistentVolume's spec.nodeAffinity",
		},
		"elsewhere": {
			[]map[string][]string{at{"zone": {"b", "c"}, "rack": {"8"}}, at{"zone": {"a"}, "rack": {"9"}}},
			node,
			"the volume is not accessible from this node: it is at rack=8,zone=b|c or rack=9, and the driver reports that the node is at rack=7,zone=a",
		},
	} {
		if got := OutOfReach(c.places, true, c.node); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if got := OutOfReach(c.places, false, c.node); got != "" {
			t.Errorf("%s: a driver that is away says %q", name, got)
		}
	}
}
