package watch

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A call counts for the server, the namespace and the kind of its volume.
//
// Attacks: C50.
func TestAttackSharesOfAVolume(t *testing.T) {
	pod := func(ns string) map[state.PodUID]state.Mount {
		return map[state.PodUID]state.Mount{"a": {MountSpec: state.MountSpec{Pod: state.Pod{UID: "a", Namespace: ns}}}}
	}
	for name, c := range map[string]struct {
		volume            state.Volume
		namespace, server string
	}{
		"nfs":            {state.Volume{Spec: &state.Spec{Config: []byte(`{"server":"10.0.0.1","path":"/x"}`)}, Mounts: pod("web")}, "web", "10.0.0.1"},
		"iscsi":          {state.Volume{Spec: &state.Spec{Config: []byte(`{"targetPortal":"10.0.0.2:3260"}`), Claim: "db/data"}}, "db", "10.0.0.2:3260"},
		"cephfs":         {state.Volume{Spec: &state.Spec{Config: []byte(`{"monitors":["a","b"]}`)}, Mounts: pod("web")}, "web", "a,b"},
		"a CSI driver's": {state.Volume{Spec: &state.Spec{Claim: "db/data", Context: map[string]string{"server": "10.0.0.3"}}, Mounts: pod("db")}, "db", "10.0.0.3"},
		"smb":            {state.Volume{Spec: &state.Spec{Claim: "db/data", Context: map[string]string{"source": "//files/x"}}}, "db", "//files/x"},
		"none":           {state.Volume{Spec: &state.Spec{Config: []byte(`[]`)}}, "", ""},
	} {
		if got := namespaceOf(c.volume); got != c.namespace {
			t.Errorf("%s: namespace %q, want %q", name, got, c.namespace)
		}
		if got := serverOf(c.volume.Spec); got != c.server {
			t.Errorf("%s: server %q, want %q", name, got, c.server)
		}
	}
}
