package failpoint

import (
	"os"
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

// A package that has an effect is in a room, or this list says why it is not.
func TestEveryPackageWithAnEffectIsARoom(t *testing.T) {
	none := map[string]string{
		"pkg/builtins": "its Publish passes the call on to a kind, whose room has the effects",
		"pkg/recorder": "its Remove is of a list in memory",
		"pkg/resolve":  "its Expand is of a text",
		"pkg/token":    "its Truncate is of a time",
	}
	const root = "../.."
	found := map[string][]string{} // by directory
	for _, top := range []string{"pkg", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			_, places, err := instrument(path, path)
			if dir, _ := filepath.Rel(root, filepath.Dir(path)); len(places) > 0 {
				found[dir] = append(found[dir], places...)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for dir, places := range found {
		in := slices.ContainsFunc(rooms, func(room string) bool { return dir == room || strings.HasPrefix(dir, room+"/") })
		if in == (none[dir] != "") {
			t.Errorf("%s has the effects %q; it is in a room: %v; why it is in none: %q", dir, places, in, none[dir])
		}
	}
	for dir := range none {
		if found[dir] == nil {
			t.Errorf("%s has no effect", dir)
		}
	}
}
