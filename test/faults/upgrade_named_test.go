package faults

import (
	"os"
	"path/filepath"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// An older program keeps the data of a removed volume under the volume's name. After the upgrade a new volume of the name
// begins empty and the data comes back by its new name; volumes that exist keep theirs. The older program finds all data
// again: what is parked, by a volume of its name.
func TestUpgradeAndBackWithARemovedVolume(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	socket := n.Path("run/plugin.sock")
	n.flags, n.program, n.StorageID = harness.VolumePluginFlags(socket), before, ""
	n.begin(csistrict.Script{})
	p := harness.NewVolumePlugin(t, socket)
	options := map[string]string{"class": "class", "size": "1Mi"}
	file := func(volume string) string {
		t.Helper()
		return filepath.Join(p.Do("Mount", volume, nil).Mountpoint, "f")
	}
	mark := func(volume, marker string) {
		t.Helper()
		n.write(file(volume), marker)
		p.Do("Unmount", volume, nil)
	}
	want := func(volume, marker string) {
		t.Helper()
		if b, err := os.ReadFile(file(volume)); string(b) != marker || (marker == "") != os.IsNotExist(err) {
			t.Errorf("volume %s has %q, %v; want %q", volume, b, err, marker)
		}
		p.Do("Unmount", volume, nil)
	}
	replace := func(by string) {
		t.Helper()
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
	}
	for _, volume := range []string{"db", "stays"} {
		p.Do("Create", volume, options)
		mark(volume, "of "+volume)
	}
	n.Eventually("the older program to remove it", func() bool { // it takes what a busy machine delays for a holder
		_, err := p.Ask(t.Context(), "Remove", "db", nil)
		return err == nil
	})

	replace("") // the program of this tree
	want("stays", "of stays")
	p.Do("Create", "db", options)
	want("db", "")
	mark("db", "second")
	first, err := n.API.KeptNamed(t.Context())
	if err != nil || len(first) != 1 {
		t.Fatalf("kept: %+v, %v", first, err)
	}
	n.Do("", "volume", "restore", first[0].Name, "old")
	want("old", "of db")
	p.Do("Remove", "db", nil)
	second, err := n.API.KeptNamed(t.Context())
	if err != nil || len(second) != 1 || second[0].Was != "db" {
		t.Fatalf("kept: %+v, %v", second, err)
	}

	replace(before)
	want("old", "of db")
	want("stays", "of stays")
	p.Do("Create", second[0].Name, options)
	want(second[0].Name, "second")

	replace("")
	want(second[0].Name, "second")
	for _, volume := range []string{second[0].Name, "old", "stays"} {
		p.Do("Remove", volume, nil)
	}
	kept, err := n.API.KeptNamed(t.Context())
	if err != nil || len(kept) != 3 {
		t.Errorf("kept in the end: %+v, %v", kept, err)
	}
	for _, k := range kept {
		n.Do("", "delete", "pvc", k.Name, "--data")
	}
	n.verdict()
}
