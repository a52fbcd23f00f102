package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

// newKinds makes a node whose pod has a volume of each kind that needs no server.
func newKinds(t *testing.T) *node {
	n := newNode(t)
	layouts, err := filepath.Abs("../../examples/image")
	if err != nil {
		t.Fatal(err)
	}
	n.plain, n.raw = drivertest.Device(t, ""), drivertest.Device(t, "")
	n.flags = []string{"--host-path-allow", n.Path("host"), "--host-path-allow", "/dev", "--image-layouts", layouts}
	n.phases = []phase{
		{name: "start", early: true, step: n.answers},
		{name: "make", step: n.make},
		{name: "restart", early: true, step: n.there},
		{name: "change", step: n.change},
		{name: "damage", ready: n.damage, early: true, step: n.change},
		{name: "remove", step: n.remove},
		{name: "delete", step: n.delete},
	}
	return n
}

// newDriver makes the same node with the driver as a process of its own. The driver is the
// victim.
func newDriver(t *testing.T) *node {
	n := newKinds(t)
	n.apart, n.driverDies = true, true
	return n
}

// own are the claims and volumes on the node's own disks.
var own = []string{"shelf", "format", "raw"}

func (n *node) manifest(objects, size, text string) server.Manifest {
	return server.Manifest{Name: "-", Data: fmt.Appendf(nil, objects, size, text, n.Path("host"), n.plain, n.raw)}
}

// contains checks that all mounts of the container are there, including parts of volumes.
func (n *node) contains() error {
	mounts, err := n.API.ContainerMounts(n.ctx(), server.Container{Namespace: "default", Pod: "web", Name: "main"})
	if err != nil {
		return err
	}
	for _, m := range mounts {
		st, err := os.Stat(m.HostPath)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", m.ContainerPath, err)
		case m.ContainerPath == "/part" && !st.IsDir(), m.ContainerPath == "/one" && st.Mode().Perm() != 0o440:
			return fmt.Errorf("%s is %v", m.ContainerPath, st.Mode())
		}
	}
	if len(mounts) != 17 {
		return fmt.Errorf("the container has %d mounts: %+v", len(mounts), mounts)
	}
	return nil
}

// damage overwrites the start of the journal with zeros, as a failing disk may.
func (n *node) damage() {
	if n.apart {
		return // the daemon still runs and has the journal open
	}
	n.damages++
	files, err := filepath.Glob(n.Path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.T.Fatalf("journal: %q, %v", files, err)
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 16<<10), 0); err != nil {
		n.T.Fatal(err)
	}
}

func (n *node) apply(size, text string) error {
	_, err := n.API.Apply(n.ctx(), n.manifest(objects+podObject, size, text))
	return err
}

func (n *node) make() error {
	if err := n.apply("64Mi", "hello"); err != nil {
		return err
	}
	weekly := server.ScheduleRequest{Namespace: "default", Name: "album", Claim: "data", Every: "weekly", Keep: 1}
	if _, err := n.API.SetSchedule(n.ctx(), weekly); err != nil {
		return err
	}
	return n.there()
}

// there checks that the pod has its volumes, that no step is pending, and that their
// content is right.
func (n *node) there() error {
	p, err := n.API.Pod(n.ctx(), "default", "web")
	if err != nil {
		return err
	}
	if !p.Ready || len(p.Volumes) != 15 {
		return fmt.Errorf("the pod is not ready: %+v", p)
	}
	for _, v := range p.Volumes {
		if v.Step != "" {
			return fmt.Errorf("volume %v is at step %s, %s", v.Names, v.Step, v.BlockedBy)
		}
	}
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Volume == "" {
			return fmt.Errorf("claim %s has no volume: %+v", c.Name, c)
		}
	}
	return errors.Join(n.photographed(), n.holds("hello"), n.contains())
}

// photographed checks that four snapshots are ready: one of a manifest, one of the
// schedule, and two of a group.
func (n *node) photographed() error {
	all, err := n.API.Snapshots(n.ctx())
	if err != nil {
		return err
	}
	if len(all) != 4 || slices.ContainsFunc(all, func(s server.SnapshotStatus) bool { return !s.Ready }) {
		return fmt.Errorf("snapshots %+v", all)
	}
	return nil
}

func (n *node) holds(text string) error {
	mounts, err := n.API.Mounts(n.ctx(), "default", "web")
	if err != nil {
		return err
	}
	for _, m := range mounts {
		file := map[string]string{"settings": "greeting", "key": "key", "all": "key"}[m.Name]
		if file == "" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.HostPath, file))
		if err != nil || string(b) != text {
			return fmt.Errorf("%s/%s is %q, %v, want %q", m.Name, file, b, err, text)
		}
	}
	return nil
}

// change gives the pod new content and a larger volume.
func (n *node) change() error {
	if err := n.apply("96Mi", "goodbye"); err != nil {
		return err
	}
	if err := errors.Join(n.holds("goodbye"), n.contains()); err != nil {
		return err
	}
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Name == "data" && c.NodeBytes < 96<<20 {
			return fmt.Errorf("the claim has %d bytes: %+v", c.NodeBytes, c)
		}
	}
	return nil
}

// remove deletes the pod while a drain holds back new volumes.
func (n *node) remove() error {
	if _, err := n.API.Drain(n.ctx(), server.DrainHold, ""); err != nil {
		return err
	}
	if err := n.API.DeletePod(n.ctx(), "default", "web"); err != nil && !errors.Is(err, server.ErrNotFound) {
		return err
	}
	return errors.Join(n.noVolumes(), n.API.Undrain(n.ctx()))
}

// noVolumes returns an error if there is a volume.
func (n *node) noVolumes() error {
	vs, err := n.API.Volumes(n.ctx())
	if err != nil {
		return err
	}
	if len(vs) > 0 {
		return fmt.Errorf("%d volumes are left: %+v", len(vs), vs)
	}
	return nil
}

func (n *node) delete() error {
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, name := range []string{"data", "disk", "copy"} {
		if !n.deleted[name] {
			_, err := n.API.DeleteClaim(n.ctx(), server.ClaimDeletion{Namespace: "default", Name: name})
			n.deleted[name] = err == nil
		}
	}
	pvs, err := n.API.PersistentVolumes(n.ctx())
	if err != nil {
		return err
	}
	// Those on the node's own disks stay until the Withdraw below.
	claims = slices.DeleteFunc(claims, func(c server.ClaimStatus) bool { return slices.Contains(own, c.Name) })
	pvs = slices.DeleteFunc(pvs, func(v server.PVStatus) bool { return slices.Contains(own, v.Name) })
	if err := n.API.RemoveSchedule(n.ctx(), "default", "album"); err != nil && !errors.Is(err, server.ErrNotFound) {
		return err
	}
	snapshots, err := n.API.Snapshots(n.ctx())
	if err != nil {
		return err
	}
	group := server.SnapshotDeletion{Namespace: "default", Name: "pair", Group: true}
	if !n.deleted["pair"] {
		_, err := n.API.DeleteSnapshot(n.ctx(), group)
		n.deleted["pair"] = err == nil
	}
	for _, s := range snapshots {
		if s.Group != "" {
			continue
		}
		_, err := n.API.DeleteSnapshot(n.ctx(), server.SnapshotDeletion{Namespace: "default", Name: s.Name})
		n.deleted["photo"] = n.deleted["photo"] || err == nil && s.Name == "photo"
	}
	if len(claims)+len(pvs)+len(snapshots) > 0 {
		n.empty = time.Time{}
		return fmt.Errorf("left: %+v, %+v, %+v", claims, pvs, snapshots)
	}
	if n.empty.IsZero() {
		n.empty = time.Now()
	}
	// A daemon that has just started lists nothing before it has read its own state, and a
	// killed daemon may have deleted without an answer.
	if !n.deleted["data"] || !n.deleted["disk"] || !n.deleted["copy"] || !n.deleted["photo"] || !n.deleted["pair"] {
		if time.Since(n.empty) < 2*time.Second {
			return errors.New("the claims and the snapshots are not known to be deleted")
		}
	}
	if _, err = n.API.Withdraw(n.ctx(), n.manifest(objects, "96Mi", "goodbye")); err != nil {
		return err
	}
	// A kill right after the last removal loses its success, which would be written later.
	// The daemon of this phase then repeats the removal.
	return n.noVolumes()
}
