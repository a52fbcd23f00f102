package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// TestNodeOfNamedVolumesKilledAtEveryPlaceItConverges kills the daemon while a program
// outside Kubernetes creates a named volume, mounts and binds it, grows it, unmounts and
// removes it. As long as a mount holds the volume, its file is there, whenever the daemon
// dies.
func TestNodeOfNamedVolumesKilledAtEveryPlaceItConverges(t *testing.T) { prove(t, named) }

// namedVolume is the name of the volume and of its claim.
const namedVolume = "default/named"

// newNamed makes a node whose only volume is one that mount -t csi names.
func newNamed(t *testing.T) *node {
	n := newNode(t)
	if err := os.Mkdir(n.Path("srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(n.Path("srv"), unix.MNT_DETACH) })
	n.phases = []phase{
		{name: "start", early: true, step: n.answers},
		{name: "create", step: func() error { return n.createNamed("64Mi") }},
		{name: "mount", step: n.mountNamed},
		{name: "restart", early: true, step: n.namedIsHeld},
		{name: "grow", step: n.growNamed},
		{name: "unmount", step: n.unmountNamed},
		{name: "remove", step: n.removeNamed},
	}
	return n
}

func (n *node) createNamed(size string) error {
	class := fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: class}, provisioner: %s,
allowVolumeExpansion: true}`, localdriver.DefaultName)
	if _, err := n.API.Apply(n.ctx(), server.Manifest{Name: "-", Data: []byte(class)}); err != nil {
		return err
	}
	_, err := n.API.CreateNamed(n.ctx(), server.NamedRequest{Name: namedVolume, FrontEnd: "mount", Options: map[string]string{
		"class": "class", "size": size, "mode": "0710", "reclaim": "Delete",
	}})
	return err
}

// mountNamed does what the helper of mount(8) does, and writes a file.
func (n *node) mountNamed() error {
	path, err := n.API.MountNamed(n.ctx(), "mount", namedVolume)
	if err != nil {
		return err
	}
	srv := n.Path("srv")
	if slices.ContainsFunc(n.MountTable(), func(line []string) bool { return slices.Contains(line, srv) }) {
		return n.namedIsHeld()
	}
	if err := unix.Mount(path, srv, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if st, err := os.Stat(srv); err != nil || st.Mode().Perm() != 0o710 {
		return fmt.Errorf("the directory is %v, %w", st.Mode(), err)
	}
	return os.WriteFile(filepath.Join(srv, "f"), []byte("of a named volume"), 0o600)
}

// namedIsHeld checks that the volume is mounted, that the daemon knows which mount holds
// it, and that the file is there.
func (n *node) namedIsHeld() error {
	if b, err := os.ReadFile(n.Path("srv/f")); err != nil || string(b) != "of a named volume" {
		return fmt.Errorf("the file is %q, %w", b, err)
	}
	v, err := n.API.NamedVolume(n.ctx(), namedVolume)
	if err != nil {
		return err
	}
	if want := "the mount at " + n.Path("srv"); !slices.Contains(v.Holders, want) || len(v.Waits) > 0 {
		return fmt.Errorf("want %q to hold it: %+v", want, v)
	}
	return nil
}

func (n *node) growNamed() error {
	if err := n.createNamed("96Mi"); err != nil {
		return err
	}
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Name == "named" && c.NodeBytes < 96<<20 {
			return fmt.Errorf("the claim has %d bytes: %+v", c.NodeBytes, c)
		}
	}
	return n.namedIsHeld()
}

// unmountNamed ends the only use. No call tells the daemon.
func (n *node) unmountNamed() error {
	if err := unix.Unmount(n.Path("srv"), unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return n.noVolumes()
}

func (n *node) removeNamed() error {
	if _, err := n.API.RemoveNamed(n.ctx(), server.NamedRemoval{Name: namedVolume}); err != nil && !errors.Is(err, server.ErrNotFound) {
		return err
	}
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	if len(claims) > 0 {
		return fmt.Errorf("left: %+v", claims)
	}
	if _, err := os.Stat(n.Path("srv/f")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file of a removed volume: %w", err)
	}
	return n.noVolumes()
}
