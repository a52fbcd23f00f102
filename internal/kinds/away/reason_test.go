package away

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Each error of a built-in kind has a reason, also when it is wrapped, and each reason that
// has advice is that of some error.
//
// Faults: A165.
func TestErrorsOfBuiltInKindsHaveReasons(t *testing.T) {
	left := state.Reasons()
	for _, m := range meanings() {
		got := Reason(&state.CallError{Outcome: state.Refused, Call: "Publish", Err: fmt.Errorf("volume v: %w", m.err)})
		if got != m.reason || got == "" {
			t.Errorf("%v: %q, want %q", m.err, got, m.reason)
		}
		left = slices.DeleteFunc(left, func(r state.Reason) bool { return r == got })
	}
	mismatch := Reason(&state.CallError{Code: state.FilesystemMismatch, Err: errors.New("x")})
	if left = slices.DeleteFunc(left, func(r state.Reason) bool { return r == mismatch }); len(left) != 0 {
		t.Errorf("no error is of %q", left)
	}
	if got := Reason(errors.New("any")); got != "" {
		t.Errorf("of any other error: %q", got)
	}
}

// A helper's refusal has the same reason here.
//
// Faults: A165.
func TestAHelpersRefusalKeepsItsReason(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind         state.DriverName
		path, source string
		want         state.Reason
		outcome      state.Outcome
	}{
		{hostpath.Kind, other, "", state.NotAllowed, state.Refused},
		{hostpath.Kind, dir + "/file", `"type": "Directory"`, state.WrongType, state.Failed},
		{hostpath.Kind, dir + "/none", `"type": "Directory"`, state.NotThere, state.Failed},
		{local.Kind, other, "", state.NotAllowed, state.Refused},
		{local.Kind, dir + "/file", "", state.WrongType, state.Refused},
		{local.Kind, dir + "/none", "", state.NotThere, state.Failed},
	} {
		source := fmt.Sprintf(`{"path": %q}`, c.path)
		if c.source != "" {
			source = fmt.Sprintf(`{"path": %q, %s}`, c.path, c.source)
		}
		layout := state.Layout{Root: t.TempDir()}
		pod := state.PodUID("11111111-2222-3333-4444-555555555555")
		v := state.Volume{ID: state.PodVolumeID(c.kind, pod, "v"), Spec: &state.Spec{
			Driver: c.kind, Builtin: true, Name: "v", Mode: state.Filesystem, Config: json.RawMessage(source),
		}}
		target := layout.BuiltinTarget(c.kind, pod, "v")
		v.Mounts = map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{Pod: state.Pod{UID: pod}, Target: target, HostPath: c.path}}}
		reply, err := doVerb(t.Context(), verbRequest{Kind: c.kind, Verb: "Publish", Root: layout.Root, Allow: []string{dir}, Volume: v, Pod: pod})
		if err != nil {
			t.Fatal(err)
		}
		if a := reply.(verbReply); a.Reason != c.want || a.Outcome != c.outcome {
			t.Errorf("%s at %s: %+v, want %s, %s", c.kind, c.path, a, c.want, c.outcome)
		}
	}
}
