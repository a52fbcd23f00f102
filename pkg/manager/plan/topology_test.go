package plan

import "testing"

func TestWhatIsOutOfReach(t *testing.T) {
	type at = map[string][]string
	node := map[string]string{"zone": "a", "rack": "7"}
	for name, c := range map[string]struct {
		places []map[string][]string
		node   map[string]string
		want   string
	}{
		"anywhere":               {nil, node, ""},
		"a driver that tells no": {[]map[string][]string{{"zone": {"b"}}}, nil, ""},
		"here":                   {[]map[string][]string{at{"zone": {"b", "a"}, "rack": {"7"}}}, node, ""},
		"one of them":            {[]map[string][]string{at{"zone": {"b"}}, at{"zone": {"a"}}}, node, ""},
		"somebody else's label":  {[]map[string][]string{at{"arch": {"arm64"}}}, node, ""},
		"elsewhere": {
			[]map[string][]string{at{"zone": {"b", "c"}, "rack": {"8"}}, at{"zone": {"a"}, "rack": {"9"}}},
			node,
			"the volume is out of this node's reach: it is at rack=8,zone=b|c or rack=9, and the driver says that the node is at rack=7,zone=a",
		},
	} {
		if got := OutOfReach(c.places, c.node); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
