package builtins

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/nfs"
)

// A kind lacks the programs that do not exist at the time of the question.
func TestAKindLacksTheProgramsThatAreNotThere(t *testing.T) {
	dir := t.TempDir()
	if got := lacks(nfs.Kind, []string{dir}); !slices.Equal(got, []string{"mount.nfs"}) {
		t.Errorf("nfs lacks %q", got)
	}
	if got := lacks(emptydir.Kind, []string{dir}); len(got) != 0 {
		t.Errorf("emptyDir lacks %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "mount.nfs"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := lacks(nfs.Kind, []string{dir}); len(got) != 0 {
		t.Errorf("with the program nfs lacks %q", got)
	}
	if got := lacks(iscsi.Kind, []string{dir}); !slices.Equal(got, []string{"iscsiadm"}) {
		t.Errorf("iscsi lacks %q", got)
	}
}
