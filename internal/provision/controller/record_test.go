package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func fullRecord() record {
	s, _ := newSpec(testClaim("a", mib), allCaps())
	return record{
		Version: recordVersion, Claim: testKey("a"), UID: "uid-a", Name: "pvc-uid-a", Spec: s,
		Volume: state.Fact{Phase: state.Present, Failed: &state.Retry{Attempts: 2, Since: time.Unix(5, 0).UTC(), Call: "CreateVolume"}},
		Handle: "vol-1", RequestedBytes: mib, CapacityBytes: mib, NodeBytes: mib,
		Context: map[string]string{"k": "v"}, Topology: []map[string]string{{"zone": "a"}},
		Growing: 2 * mib, Attach: state.Entering, NodeID: "node-1", Delete: true,
		MadeFor: testKey("b"), Parked: []byte(`{"volume":"b"}`),
	}
}

func TestRecordSurvivesTheJournal(t *testing.T) {
	b, err := claimBucket().encode("default/a", fullRecord())
	if err != nil {
		t.Fatal(err)
	}
	got, err := claimBucket().decode("default/a", b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullRecord(), got, cmp.AllowUnexported(record{}, spec{}, source{}, secrets{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordThatIsNotWholeIsRefused(t *testing.T) {
	good, _ := claimBucket().encode("default/a", fullRecord())
	for _, tt := range []struct{ key, text, want string }{
		{"default/a", "", "unexpected end"},
		{"default/a", "{}", "version 0"},
		{"default/a", strings.Replace(string(good), `"version":1`, `"version":2`, 1), "version 2"},
		{"default/b", string(good), "it is of claim default/a"},
		{"default/a", strings.Replace(string(good), `"pvc-uid-a"`, `""`, 1), "no volume name"},
		{"default/a", strings.Replace(string(good), `"vol-1"`, `""`, 1), "without a handle"},
		{"default/a", strings.Replace(string(good), `"present"`, `"gone"`, 1), "phase"},
	} {
		if _, err := claimBucket().decode(tt.key, []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// A record that decodes encodes to the same again; a bad one causes no panic.
func FuzzDecode(f *testing.F) {
	good, _ := claimBucket().encode("default/a", fullRecord())
	f.Add(string(good))
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := claimBucket().decode("default/a", []byte(text))
		if err != nil {
			return
		}
		b, err := claimBucket().encode("default/a", r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := claimBucket().decode("default/a", b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if b2, _ := claimBucket().encode("default/a", again); string(b2) != string(b) {
			t.Errorf("%s\n%s", b, b2)
		}
	})
}
