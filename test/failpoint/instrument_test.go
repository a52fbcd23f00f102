package failpoint

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Every driver call that changes something is an effect, including a call that CSI adds
// after this list was written.
func TestEveryCallThatChangesSomethingIsAnEffect(t *testing.T) {
	asks := []string{"ControllerGet", "ControllerList", "Get", "GroupControllerGet", "List", "NodeGet", "ValidateVolumeCapabilities"}
	for _, client := range []reflect.Type{
		reflect.TypeFor[csi.ControllerClient](), reflect.TypeFor[csi.GroupControllerClient](), reflect.TypeFor[csi.NodeClient](),
	} {
		for i := range client.NumMethod() {
			call := client.Method(i).Name
			if !effects[call] && !slices.ContainsFunc(asks, func(a string) bool { return strings.HasPrefix(call, a) }) {
				t.Errorf("%s of %s is no effect", call, client.Name())
			}
		}
	}
}

// A package that is left out still has what looks like an effect.
func TestWhatIsLeftOutIsThere(t *testing.T) {
	const root = "../.."
	found := map[string]bool{} // by directory
	if err := eachFile(root, func(rel string) error {
		_, places, err := instrument(filepath.Join(root, rel), rel)
		found[filepath.Dir(rel)] = found[filepath.Dir(rel)] || len(places) > 0
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for dir := range without {
		if !found[dir] {
			t.Errorf("%s has no effect", dir)
		}
	}
	if !found["internal/journal"] || !found["internal/host/mount"] {
		t.Error("the journal and the mounts have no effects")
	}
}
