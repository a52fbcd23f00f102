package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// flip changes one text in the file of an open journal, as a bad disk does.
func flip(t *testing.T, path, was, is string) {
	t.Helper()
	data := read(t, path)
	if !bytes.Contains(data, []byte(was)) {
		t.Fatalf("%s has no %q", path, was)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(bytes.ReplaceAll(data, []byte(was), []byte(is)), 0)
	must(t, errors.Join(err, f.Close()))
}

// A value that cannot be read stops no spare copy: the next ones have all that is sound, and go on
// having the last sound value of its key. A restore does not take that one for the present value; Mend
// does.
//
// Faults: A184.
func TestAValueThatCannotBeReadDoesNotLetTheSpareCopyAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	v := state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d", Handle: "mounted"}, Stage: state.Fact{Phase: state.Present}}
	must(t, b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: &v}))
	must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"a": []byte("the value")}))
	must(t, b.Close())
	flip(t, path, "the value", "the vALUE")
	flip(t, path, `"handle":"mounted"`, `"handle":"MOUNTED"`)

	b = openBolt(t, path)
	must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"b": []byte("is new")}))
	if err := b.Spare(t.Context()); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "[kv/claims/a volumes/d^v]") {
		t.Errorf("Spare: %v", err)
	}
	must(t, b.Close()) // this copy does not forget the older values
	sound := read(t, path)

	write(t, path, []byte("garbage")) // the spare copy takes its place
	b = openBolt(t, path)
	values, err := b.LoadBucket(t.Context(), "claims")
	must(t, err)
	loaded, err := b.Load(t.Context())
	must(t, err)
	if string(values.Sound["b"]) != "is new" || values.Unreadable["a"] == "" || loaded.Quarantined["d^v"] == "" || !b.Recovery().Lost() {
		t.Errorf("restored: %q, unreadable %v, %v, %v", values.Sound, values.Unreadable, loaded.Quarantined, b.Recovery())
	}
	must(t, b.Close())

	write(t, path, sound)
	b = openBolt(t, path)
	mended, left, err := b.Mend(t.Context())
	if want := []string{"kv/claims/a", "volumes/d^v"}; err != nil || !slices.Equal(mended, want) || len(left) > 0 {
		t.Errorf("mended %v, left %v, %v", mended, left, err)
	}
	values, err = b.LoadBucket(t.Context(), "claims")
	must(t, err)
	if loaded, err = b.Load(t.Context()); err != nil || string(values.Sound["a"]) != "the value" || loaded.Volumes["d^v"].Stage.Phase != state.Entering {
		t.Errorf("mended: %q, %+v, %v", values.Sound, loaded.Volumes["d^v"].Stage, err)
	}
	must(t, b.Close())
	if err := b.SpareErr(); err != nil {
		t.Errorf("after the mend: %v", err)
	}
}

// A value without a sound copy is copied as it is, and named.
func TestAValueWithoutASoundCopyIsNamed(t *testing.T) {
	bad, at := []byte("xxxxbad"), entryKey{"kv/claims", "a"}
	for name, old := range map[string]content{
		"no spare copy": {}, "the spare copy has it damaged too": {"kv/claims": {"a": []byte("yyyybad")}},
	} {
		c := content{"kv/claims": {"a": bad}}
		if lost := c.keepOlder([]entryKey{at}, old); !slices.Equal(lost, []entryKey{at}) || len(c) != 1 || !bytes.Equal(c["kv/claims"]["a"], bad) {
			t.Errorf("%s: lost %v, %v", name, lost, c)
		}
	}
}
