package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// withPlugin restarts the daemon with the volume plugin.
func (n *node) withPlugin() *harness.VolumePlugin {
	n.T.Helper()
	socket := n.Path("run/plugin.sock")
	n.flags = append(n.flags, harness.VolumePluginFlags(socket)...)
	n.restarted()
	return harness.NewVolumePlugin(n.T, socket)
}

// restarted kills the daemon and starts the next one.
func (n *node) restarted() {
	n.T.Helper()
	n.daemon.Kill()
	n.start()
	n.DriverUp(n.driver.kind.name)
}

// kept returns the names of the kept data of removed volumes.
func (n *node) kept() (names []string) {
	n.T.Helper()
	all, err := n.API.KeptNamed(n.T.Context())
	if err != nil {
		n.T.Fatal(err)
	}
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}

// marked writes a marker to a volume of the plugin, and ends the use.
func (n *node) marked(p *harness.VolumePlugin, volume, marker string) {
	n.T.Helper()
	write(n.T, filepath.Join(p.Do("Mount", volume, nil).Mountpoint, "f"), marker)
	p.Do("Unmount", volume, nil)
}

// wantMarker checks which marker a volume of the plugin has; "" for none.
func (n *node) wantMarker(p *harness.VolumePlugin, volume, want string) {
	n.T.Helper()
	at := p.Do("Mount", volume, nil).Mountpoint
	if b, err := os.ReadFile(filepath.Join(at, "f")); string(b) != want || (want == "") != os.IsNotExist(err) {
		n.T.Errorf("volume %s has %q, %v; want %q", volume, b, err, want)
	}
	if left, err := os.ReadDir(at); want == "" && (err != nil || len(left) > 0) {
		n.T.Errorf("volume %s is not empty: %v, %v", volume, left, err)
	}
	p.Do("Unmount", volume, nil)
}

// A volume of Docker's that is removed and made again begins empty, with the options that it is made with. The data of the
// removed one is listed, belongs to no front end until it is restored, and is deleted by name; so with a driver whose
// handles follow from the claims' names.
func TestARemovedVolumeOfDockerIsParked(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class())
		p := n.withPlugin()
		create := func(size string) { p.Do("Create", "db", map[string]string{"class": "class", "size": size}) }
		create("64Mi")
		n.marked(p, "db", "first")
		p.Do("Remove", "db", nil)
		kept := n.kept()
		if len(kept) != 1 || !strings.HasPrefix(kept[0], "db.removed-") {
			n.T.Fatalf("kept: %q", kept)
		}
		create("96Mi")
		n.wantMarker(p, "db", "")
		n.marked(p, "db", "second")
		n.restarted()
		n.wantMarker(p, "db", "second")
		if got := n.kept(); !slices.Equal(got, kept) {
			n.T.Errorf("after a restart kept is %q, want %q", got, kept)
		}
		if list := p.Do("List", "", nil).Volumes; len(list) != 1 || list[0].Name != "db" {
			n.T.Errorf("Docker lists %v", list)
		}
		if _, err := p.Ask(n.T.Context(), "Get", kept[0], nil); err == nil {
			n.T.Error("Docker finds the parked data as a volume")
		}
		for verb, want := range map[string]bool{"get pv": true, "volume list --all": true, "volume list": false} {
			if said := n.Do("", strings.Fields(verb)...); strings.Contains(said, kept[0]) != want {
				n.T.Errorf("%s says\n%s", verb, said)
			}
		}
		n.restored(p, kept[0])
	})
}

// restored restores the first volume's data, while the second is there, and ends both.
func (n *node) restored(p *harness.VolumePlugin, kept string) {
	n.T.Helper()
	if r := n.CLI("", "volume", "restore", kept); r.Code == 0 || !strings.Contains(r.Stderr, "volume db exists") {
		n.T.Errorf("restored to a name that is taken: %s%s", r.Stdout, r.Stderr)
	}
	n.Do("", "volume", "restore", kept, "old")
	n.wantMarker(p, "old", "first")
	n.wantMarker(p, "db", "second")
	n.restarted()
	n.wantMarker(p, "old", "first")
	n.wantMarker(p, "db", "second")
	before := n.driver.proxy.count("DeleteVolume")
	p.Do("Remove", "db", nil)
	p.Do("Remove", "old", nil)
	second := slices.DeleteFunc(n.kept(), func(name string) bool { return strings.HasPrefix(name, "old.") })
	if got := n.driver.proxy.count("DeleteVolume"); got != before || len(second) != 1 {
		n.T.Fatalf("%d calls of DeleteVolume by removals; kept: %q", got-before, second)
	}
	n.Do("", "volume", "restore", second[0])
	n.wantMarker(p, "db", "second")
	p.Do("Remove", "db", nil)
	for _, name := range n.kept() {
		if r := n.CLI("", "delete", "pvc", name, "--data"); r.Code != 0 {
			n.T.Errorf("delete pvc: %s", r.Stderr)
		}
	}
	if got := n.kept(); len(got) > 0 || n.driver.proxy.count("DeleteVolume") != before+2 {
		n.T.Errorf("kept after the deletion: %q; %d calls of DeleteVolume", got, n.driver.proxy.count("DeleteVolume")-before)
	}
	n.nothingLeft()
}

// Two names of one claim do not share data: while both exist the second is refused by both names, and it begins empty
// after the first was removed.
func TestTwoNamesOfOneClaimShareNoData(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	p := n.withPlugin()
	options := map[string]string{"class": "class", "size": "64Mi"}
	p.Do("Create", "shop_web-data", options)
	n.marked(p, "shop_web-data", "of shop")
	_, err := p.Ask(t.Context(), "Create", "shop-web_data", options)
	if err == nil || !strings.Contains(err.Error(), "volume shop-web_data") || !strings.Contains(err.Error(), "volume shop_web-data") {
		t.Errorf("the second name: %v", err)
	}
	p.Do("Remove", "shop_web-data", nil)
	p.Do("Create", "shop-web_data", options)
	n.wantMarker(p, "shop-web_data", "")
	p.Do("Remove", "shop-web_data", nil)
	for _, name := range n.kept() {
		n.Do("", "delete", "pvc", name, "--data")
	}
	n.nothingLeft()
}

// What an earlier version kept of a removed volume is a claim that is not listed, under the volume's own name. A volume
// that is made again begins empty, and nothing is lost: the data is parked, or restored before.
func TestWhatAnEarlierVersionKeptIsParked(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class())
		// An earlier version left the same of Docker's volumes as this one does of mount's.
		ctx := n.T.Context()
		for _, name := range []string{"db", "web"} {
			if err := n.earlier(name); err != nil {
				n.T.Fatal(err)
			}
		}
		p := n.withPlugin()
		p.Do("Create", "db", map[string]string{"class": "class", "size": "96Mi"})
		n.wantMarker(p, "db", "")
		kept := n.kept()
		if len(kept) != 1 {
			n.T.Fatalf("kept: %q", kept)
		}
		n.Do("", "volume", "restore", kept[0], "old")
		n.wantMarker(p, "old", "of db")
		n.Do("", "volume", "restore", "web")
		n.wantMarker(p, "web", "of web")
		for _, name := range []string{"db", "old", "web"} {
			if _, err := n.API.RemoveNamed(ctx, server.NamedRemoval{Name: name}); err != nil {
				n.T.Error(err)
			}
		}
		for _, name := range n.kept() {
			n.Do("", "delete", "pvc", name, "--data")
		}
		n.nothingLeft()
	})
}

// earlier leaves the data of a removed volume under its own name.
func (n *node) earlier(name string) error {
	ctx := n.T.Context()
	options := map[string]string{"class": "class", "size": "64Mi"}
	r := server.NamedRequest{Name: "default/" + name, FrontEnd: "mount", Options: options}
	if err := second(n.API.CreateNamed(ctx, r)); err != nil {
		return err
	}
	path, err := n.API.MountNamed(ctx, "", r.Name)
	if err != nil {
		return err
	}
	write(n.T, filepath.Join(path, "f"), "of "+name)
	return second(n.API.RemoveNamed(ctx, server.NamedRemoval{Name: r.Name}))
}

func second[T any](_ T, err error) error { return err }
