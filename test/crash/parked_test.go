package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// TestNodeOfParkedDataKilledAtEveryPlaceItConverges kills the daemon while Docker makes a volume, removes it, and makes one
// of the same name, and while the first is restored. Whenever the daemon dies, the first volume's file is in the data of
// one owner, and the second volume has its own.
func TestNodeOfParkedDataKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, parked) }

// newParked makes a node whose volumes Docker names.
func newParked(t *testing.T) *node {
	n := newNode(t)
	n.flags = harness.VolumePluginFlags(n.Path("plugin.sock"))
	p := harness.NewVolumePlugin(t, n.Path("plugin.sock"))
	ask := func(method string, opts map[string]string) func() error {
		return func() error {
			_, err := p.Ask(n.ctx(), method, "db", opts)
			return err
		}
	}
	options := map[string]string{"class": "class", "size": "32Mi"}
	n.phases = []phase{
		{name: "start", early: true, step: n.answers},
		{name: "create", step: func() error { return errors.Join(n.classOfParked(), ask("Create", options)()) }},
		{name: "write", step: func() error { return n.marked(p, "db", "", "first") }},
		{name: "remove", step: ask("Remove", nil)},
		{name: "again", step: ask("Create", options)},
		{name: "write again", step: func() error { return n.marked(p, "db", "", "second") }},
		{name: "restart", early: true, step: func() error { return n.marked(p, "db", "second", "second") }},
		{name: "restore", step: n.restoreParked},
		{name: "restart again", early: true, step: func() error {
			return errors.Join(n.marked(p, "old", "first", "first"), n.marked(p, "db", "second", "second"))
		}},
		{name: "remove both", step: func() error {
			_, err := p.Ask(n.ctx(), "Remove", "old", nil)
			return errors.Join(err, ask("Remove", nil)())
		}},
		{name: "delete", step: n.deleteParked},
	}
	return n
}

func (n *node) classOfParked() error {
	class := "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: class}, provisioner: " + localdriver.DefaultName + "}"
	_, err := n.API.Apply(n.ctx(), server.Manifest{Name: "-", Data: []byte(class)})
	return err
}

// marked checks which marker a volume has, writes another, and ends all uses. The step may be repeated after the marker
// was written.
func (n *node) marked(p *harness.VolumePlugin, volume, has, marker string) error {
	a, err := p.Ask(n.ctx(), "Mount", volume, nil)
	if err != nil {
		return err
	}
	file := filepath.Join(a.Mountpoint, "f")
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || string(b) != has && string(b) != marker {
		return fmt.Errorf("volume %s has %q, %w; want %q", volume, b, err, has)
	}
	if err := os.WriteFile(file, []byte(marker), 0o600); err != nil {
		return err
	}
	for range 3 { // a repeated Mount counts again
		if _, err := p.Ask(n.ctx(), "Unmount", volume, nil); err != nil {
			return err
		}
	}
	return nil
}

// restoreParked restores the only parked data as volume old.
func (n *node) restoreParked() error {
	kept, err := n.API.KeptNamed(n.ctx())
	if err != nil {
		return err
	}
	for _, k := range kept {
		if k.Was != "db" {
			return fmt.Errorf("kept: %+v", k)
		}
		if _, err := n.API.RestoreNamed(n.ctx(), k.Name, "old"); err != nil && !strings.Contains(err.Error(), "volume old exists") {
			return err
		}
	}
	v, err := n.API.NamedVolume(n.ctx(), "old")
	if err == nil && len(v.Waits) > 0 {
		err = fmt.Errorf("volume old waits: %q", v.Waits)
	}
	return err
}

// deleteParked deletes the data of both volumes.
func (n *node) deleteParked() error {
	kept, err := n.API.KeptNamed(n.ctx())
	if err != nil {
		return err
	}
	for _, k := range kept {
		_, name, _ := strings.Cut(k.Claim, "/")
		if _, err := n.API.DeleteClaim(n.ctx(), server.ClaimDeletion{Namespace: "default", Name: name, Data: true}); err != nil {
			return err
		}
	}
	claims, err := n.API.Claims(n.ctx())
	if err == nil && len(claims) > 0 {
		err = fmt.Errorf("left: %+v", claims)
	}
	return errors.Join(err, n.noVolumes())
}
