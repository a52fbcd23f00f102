package csiclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Items: N-92.
func TestTheFormOfTopology(t *testing.T) {
	long, many := strings.Repeat("x", 63), map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint("key-", i)] = "v"
	}
	for name, c := range map[string]struct {
		segments map[string]string
		want     string // "" if it is valid
	}{
		"none":             {nil, ""},
		"as drivers do":    {map[string]string{"topology.ebs.csi.aws.com/zone": "eu-1a", "kubernetes.io/hostname": "a.b_c"}, ""},
		"a name alone":     {map[string]string{"zone": "1"}, ""},
		"longest":          {map[string]string{"d.test/" + long: long}, ""},
		"an empty value":   {map[string]string{"zone": ""}, ""},
		"longer name":      {map[string]string{"d.test/" + long + "x": "v"}, "found key"},
		"longer value":     {map[string]string{"zone": long + "x"}, "zone: found"},
		"no name":          {map[string]string{"d.test/": "v"}, "found key"},
		"no prefix":        {map[string]string{"/zone": "v"}, "found key"},
		"two prefixes":     {map[string]string{"a/b/c": "v"}, "found key"},
		"odd characters":   {map[string]string{"zone": "a b"}, `zone: found "a b"`},
		"ends in a dash":   {map[string]string{"zone-": "v"}, "found key"},
		"differ in case":   {map[string]string{"d.test/Zone": "a", "d.test/zone": "b"}, "found keys d.test/Zone and d.test/zone"},
		"too many keys":    {many, "found more than 4096 bytes in 1000 keys"},
		"a long key short": {map[string]string{strings.Repeat("y", 4000): "v"}, "found key"},
	} {
		err := checkTopology(c.segments)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

// A driver without topology has its volumes everywhere; a driver with a malformed topology
// is not used, and is asked again.
//
// Items: N-92.
func TestTopologyOfADriver(t *testing.T) {
	for name, c := range map[string]struct {
		topology *csi.Topology
		want     string
	}{
		"absent":  {nil, ""},
		"empty":   {&csi.Topology{}, ""},
		"in form": {&csi.Topology{Segments: map[string]string{"zone": "z1"}}, ""},
		"not":     {&csi.Topology{Segments: map[string]string{"a zone": "z1"}}, `NodeGetInfo: accessible_topology: found key "a zone"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.topology = c.topology
			if c.want != "" {
				if err := dialOnly(t, f, driverName); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrName) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				return
			}
			if got, want := connect(t, f).d.Info().Topology, c.topology.GetSegments(); len(got) != len(want) || got["zone"] != want["zone"] {
				t.Errorf("topology: got %v, want %v", got, want)
			}
		})
	}
}
