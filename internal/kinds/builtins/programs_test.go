package builtins

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/nfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
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

// upLoop passes on what it is told of drivers.
type upLoop chan manager.DriverInfo

func (l upLoop) DriverUp(info manager.DriverInfo, _ manager.Driver) { l <- info }

// The loop is told when a program is installed and when it is removed, of the kinds that need it and of no other.
func TestTheLoopIsToldOfProgramsThatComeAndGo(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "sbin") // as /sbin on most systems
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	l := make(upLoop)
	s := &Set{told: map[state.DriverName]string{}, logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.programs(ctx, l, []string{link, dir, filepath.Join(dir, "none")}) }()
	lacking := map[state.DriverName]bool{}
	for range 4 {
		info := <-l
		if !strings.Contains(info.Unusable, " is not installed") {
			t.Errorf("%s: %q", info.Name, info.Unusable)
		}
		lacking[info.Name] = true
	}
	if len(lacking) != 4 || !lacking[nfs.Kind] || !lacking[iscsi.Kind] {
		t.Errorf("told of %v", lacking)
	}
	path := filepath.Join(dir, "iscsiadm")
	for _, installed := range []bool{true, false, true} {
		err := os.Remove(path)
		if installed {
			err = os.WriteFile(path+".new", nil, 0o755)
			err = errors.Join(err, os.Rename(path+".new", path)) // as dpkg does
		}
		if err != nil {
			t.Fatal(err)
		}
		if info := <-l; info.Name != iscsi.Kind || (info.Unusable == "") != installed || !info.Stage {
			t.Errorf("installed %v: told %+v", installed, info)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Without a watch the kinds count as usable: nothing would say that a program has come.
func TestWithoutAWatchEveryKindIsUsable(t *testing.T) {
	l := make(upLoop, 20)
	s := &Set{told: map[state.DriverName]string{iscsi.Kind: "iscsiadm is not installed"}}
	s.tell(l, nil)
	if info := <-l; info.Name != iscsi.Kind || info.Unusable != "" || len(l) > 0 {
		t.Errorf("told %+v, and %d more", info, len(l))
	}
}
