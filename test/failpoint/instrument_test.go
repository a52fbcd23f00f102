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

// A package that has an effect is a room, or this list says why it is not.
func TestEveryPackageWithAnEffectIsARoom(t *testing.T) {
	none := map[string]string{
		"builtins": "its Publish passes the call on to a kind, whose room has the effects",
		"recorder": "its Remove is of a list in memory",
		"resolve":  "its Expand is of a text",
		"token":    "its Truncate is of a time",
	}
	pkgs, err := filepath.Glob("../../pkg/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range pkgs {
		if slices.Contains(rooms, "pkg/"+filepath.Base(pkg)) {
			continue
		}
		var found []string
		err := filepath.WalkDir(pkg, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			_, places, err := instrument(path, path)
			found = append(found, places...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(pkg); (len(found) > 0) != (none[name] != "") {
			t.Errorf("pkg/%s is no room and has the effects %q; why it is none: %q", name, found, none[name])
		}
	}
}
