package localdriver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func groupReq(name string, sources ...string) *csi.CreateVolumeGroupSnapshotRequest {
	return &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: sources}
}

// members returns the ids of a group's snapshots, in the order of its source volumes.
func members(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, n := range g.GetSnapshots() {
		ids = append(ids, n.GetSnapshotId())
	}
	return ids
}

// cut makes a group snapshot that is deleted when the test ends.
func (r *rig) cut(name string, sources ...string) *csi.VolumeGroupSnapshot {
	r.t.Helper()
	resp, err := r.CreateVolumeGroupSnapshot(r.ctx, groupReq(name, sources...))
	if err != nil {
		r.t.Fatalf("CreateVolumeGroupSnapshot: %v", err)
	}
	g := resp.GetGroupSnapshot()
	r.t.Cleanup(func() {
		if err := r.uncut(g); err != nil {
			r.t.Errorf("DeleteVolumeGroupSnapshot: %v", err)
		}
		for _, id := range append(members(g), g.GetGroupSnapshotId()) {
			if left, _ := filepath.Glob(r.path("state", "*", id+"*")); len(left) > 0 {
				r.t.Errorf("DeleteVolumeGroupSnapshot left %q", left)
			}
		}
	})
	return g
}

func (r *rig) uncut(g *csi.VolumeGroupSnapshot) error {
	_, err := r.DeleteVolumeGroupSnapshot(r.ctx, &csi.DeleteVolumeGroupSnapshotRequest{
		GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members(g),
	})
	return err
}

// restore creates a volume from a snapshot and returns its mounted target.
func (r *rig) restore(snapshot string, like *csi.CreateVolumeRequest) string {
	r.t.Helper()
	return r.create(&csi.CreateVolumeRequest{
		Name: "of " + snapshot, VolumeCapabilities: like.VolumeCapabilities, Parameters: like.Parameters,
		VolumeContentSource: fromSnapshot(snapshot),
	}).up()
}

// counter writes increasing numbers, each into a file of the first volume and then into one of the second.
type counter struct {
	files [2]*os.File
	stop  chan struct{}
	ended chan error
}

func count(t *testing.T, first, second string) *counter {
	t.Helper()
	c := &counter{stop: make(chan struct{}), ended: make(chan error, 1)}
	for i, dir := range []string{first, second} {
		f, err := os.Create(filepath.Join(dir, "count"))
		if err != nil {
			t.Fatal(err)
		}
		c.files[i] = f
	}
	begun := make(chan struct{})
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			for _, f := range c.files {
				_, writeErr := f.WriteAt([]byte(strconv.Itoa(n)), 0)
				err = errors.Join(err, writeErr, f.Sync())
			}
			if n == 0 {
				close(begun)
			}
			select {
			case <-c.stop:
				c.ended <- errors.Join(err, c.files[0].Close(), c.files[1].Close())
				return
			default:
			}
		}
		c.ended <- err
	}()
	<-begun
	return c
}

func (c *counter) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	if err := <-c.ended; err != nil {
		t.Errorf("the program that writes: %v", err)
	}
}

// wantOneMoment fails unless the contents of two restored volumes existed at one moment.
func wantOneMoment(t *testing.T, first, second string) {
	t.Helper()
	var n [2]int
	for i, dir := range []string{first, second} {
		b, err := os.ReadFile(filepath.Join(dir, "count"))
		if err == nil {
			n[i], err = strconv.Atoi(string(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n[0] != n[1] && n[0] != n[1]+1 {
		t.Errorf("the volume that is written first is of %d, the other of %d", n[0], n[1])
	}
}

// fill writes to a mounted volume, so that copying it takes a while.
func fill(t *testing.T, target string, bytes int64) {
	t.Helper()
	mustWrite(t, target+"/filler", strings.Repeat("x", int(bytes)))
}

// wantThawed fails for a frozen file system, and thaws it, since the test would wait for it for ever.
func wantThawed(t *testing.T, path string) {
	t.Helper()
	if err := freeze(path); err != nil {
		t.Errorf("%s is still frozen, or cannot be: %v", path, err)
	}
	if err := thaw(path); err != nil {
		t.Error(err)
	}
}

// A flipped bit in the phase of a group does not make the driver copy its volumes again.
func TestAGroupInNoPhaseIsNotMadeAgain(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	g := r.cut("g", v.id)
	r.stop()
	path := r.path("state", groupsDir, g.GetGroupSnapshotId()+".json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path, strings.Replace(string(good), `"ready"`, `"reade"`, 1))
	r.start()
	_, err = r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", v.id))
	wantCode(t, "the group again", err, codes.DataLoss)
	r.stop()
	mustWrite(t, path, string(good))
	r.start()
}

// The members of a group are of one moment, whatever a program writes meanwhile, also if the driver clones
// each of them at once.
func TestAGroupIsOfOneMoment(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		req := createReq("first", 32*mib, fsCap("ext4", multi))
		first := r.create(req)
		second := r.create(createReq("second", 32*mib, fsCap("ext4", multi)))
		between := r.create(createReq("between", 128*mib, fsCap("ext4", multi)))
		fill(t, between.up(), 96*mib)
		c := count(t, first.up(), second.up())
		g := r.cut("g", first.id, between.id, second.id)
		c.end(t)
		if !g.GetReadyToUse() || len(g.GetSnapshots()) != 3 || g.GetCreationTime() == nil {
			t.Fatalf("group is %v", g)
		}
		wantOneMoment(t, r.restore(g.GetSnapshots()[0].GetSnapshotId(), req), r.restore(g.GetSnapshots()[2].GetSnapshotId(), req))
	})
}

// Once the driver holds all volumes, programs can write to none; afterwards to all.
func TestAGroupHoldsAllOfItsVolumes(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		var volumes []volume
		var all []vol
		for _, kind := range []string{"xfs", "ext4", "btrfs"} {
			v := r.create(createReq(kind, 128*mib, fsCap(kind, multi)))
			v.up()
			all = append(all, v)
			volumes = append(volumes, volume{ID: v.id, Type: typeImage})
		}
		h := &freezes{}
		if err := r.d.freezeAll(r.ctx, volumes, h); err != nil {
			t.Fatal(err, h.end())
		}
		for _, v := range all {
			if !r.d.store.attachment(v.id).Frozen {
				t.Errorf("the freeze of %s was not announced", v.id)
			}
			if err := freeze(v.staging()); !errors.Is(err, unix.EBUSY) {
				t.Errorf("freezing what should be frozen = %v, want EBUSY", err)
			}
		}
		if err := h.end(); err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			wantThawed(t, v.staging())
			if r.d.store.attachment(v.id).Frozen {
				t.Errorf("the record of %s still says frozen", v.id)
			}
		}
	})
}

// The error names a volume that the driver cannot freeze, and the volumes frozen before it
// are thawed.
func TestAGroupRefusesVolumesThatCannotBeHeldStill(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		image := r.create(createReq("image", 32*mib, fsCap("ext4", multi)))
		target := image.up()
		directoryReq := directoryReq("directory")
		for what, other := range map[string]vol{
			"a directory": r.create(directoryReq),
			"a device":    r.create(createReq("device", 32*mib, blockCap(multi))),
		} {
			other.up()
			_, err := r.CreateVolumeGroupSnapshot(r.ctx, groupReq(what, image.id, other.id))
			wantCode(t, what+" in use", err, codes.FailedPrecondition)
			if err == nil || !strings.Contains(err.Error(), other.id) {
				t.Errorf("%s in use: %v does not name volume %s", what, err, other.id)
			}
			wantThawed(t, image.staging())
			mustWrite(t, target+"/file", what)
			if left, _ := filepath.Glob(r.path("state", "*", "*"+nameHash(what)+"*")); len(left) > 0 {
				t.Errorf("%s in use: left %q", what, left)
			}
			other.down()
			g := r.cut(what, image.id, other.id)
			wantFile(t, r.restore(members(g)[0], createReq("", 0, fsCap("", multi)))+"/file", what)
		}
	})
}

// A directory that is not mounted is copied with the others.
func TestAGroupOfADirectory(t *testing.T) {
	r := newRig(t)
	req := directoryReq("v")
	v := r.create(req)
	mustWrite(t, v.up()+"/file", "text")
	v.down()
	g := r.cut("g", v.id)
	wantFile(t, r.restore(members(g)[0], req)+"/file", "text")
}

// File systems that the orchestrator has frozen are copied as they are, and stay frozen; if it thaws
// one meanwhile, the call fails, since the copies are not of one moment.
func TestAGroupOfVolumesThatTheOrchestratorHasFrozen(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		frozen := r.create(createReq("frozen", 32*mib, fsCap("ext4", multi)))
		other := r.create(createReq("other", 32*mib, fsCap("ext4", multi)))
		mustWrite(t, frozen.up()+"/file", "text")
		other.up()
		if err := freeze(frozen.staging()); err != nil {
			t.Fatal(err)
		}
		g := r.cut("g", frozen.id, other.id)
		if err := freeze(frozen.staging()); !errors.Is(err, unix.EBUSY) {
			t.Errorf("it is not frozen after the copy: %v", err)
		}
		wantThawed(t, other.staging())
		err := r.d.whileFrozen(r.ctx, []volume{{ID: frozen.id, Type: typeImage}, {ID: other.id, Type: typeImage}}, func(context.Context) error {
			return thaw(frozen.staging())
		})
		if err == nil || !strings.Contains(err.Error(), frozen.id) {
			t.Errorf("a copy of a volume that was thawed: %v", err)
		}
		wantThawed(t, other.staging())
		wantFile(t, r.restore(members(g)[0], createReq("", 0, fsCap("", multi)))+"/file", "text")
	})
}

// Whatever a crash left of a group is discarded: the driver copies all members anew.
func TestAGroupThatACrashCutOffBeginsAnew(t *testing.T) {
	r := newRig(t)
	req, dirReq := createReq("image", 32*mib, fsCap("ext4", multi)), directoryReq("directory")
	image, directory := r.create(req), r.create(dirReq)
	for _, v := range []vol{image, directory} {
		mustWrite(t, v.up()+"/file", "now")
		v.down()
	}
	g := newGroup("g", []string{image.id, directory.id})
	g.Members[0].Type, g.Members[1].Type = typeImage, typeDirectory
	if err := r.d.store.putGroup(g); err != nil {
		t.Fatal(err)
	}
	done, half := r.d.store.dataPath(g.Members[0].ID, typeImage), r.d.store.dataPath(g.Members[1].ID, typeDirectory)
	mustWrite(t, done, "of before")
	for _, dir := range []string{half, half + partSuffix} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, dir+"/more", "of before")
	}
	r.restart()
	for _, m := range g.Members {
		_, err := r.GetSnapshot(r.ctx, &csi.GetSnapshotRequest{SnapshotId: m.ID})
		wantCode(t, "a member of a group that is not whole", err, codes.NotFound)
	}
	got := r.cut("g", image.id, directory.id)
	if got.GetGroupSnapshotId() != g.ID || !slices.Equal(members(got), g.members()) {
		t.Errorf("group is %v, want the one that the record has", got)
	}
	wantFile(t, r.restore(members(got)[0], req)+"/file", "now")
	target := r.restore(members(got)[1], dirReq)
	wantFile(t, target+"/file", "now")
	wantGone(t, target+"/more")
}

// A copy that fails leaves no bytes and no record.
func TestACopyThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	t.Setenv("PATH", "") // so that the program that copies is not found
	_, err := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
	wantCode(t, "a copy without its program", err, codes.Internal)
	if left, _ := filepath.Glob(r.path("state", dataDir, "snap-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if n, found, err := r.d.store.snapshotNamed("s"); found || err != nil {
		t.Errorf("the record of a snapshot that failed: %v, %v, want none", n, err)
	}
}

// A group with a volume that cannot be in it is refused before anything is written.
func TestAGroupIsCheckedBeforeItIsWritten(t *testing.T) {
	r := newRig(t)
	image, directory := r.create(createReq("image", 32*mib, fsCap("ext4", multi))), r.create(directoryReq("directory"))
	directory.up()
	long := time.Unix(1, 0)
	for what, test := range map[string]struct {
		other string
		want  codes.Code
	}{
		"no such volume":     {"lv-1", codes.NotFound},
		"a directory in use": {directory.id, codes.FailedPrecondition},
	} {
		if err := os.Chtimes(r.path("state", groupsDir), long, long); err != nil {
			t.Fatal(err)
		}
		_, err := r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", image.id, test.other))
		wantCode(t, what, err, test.want)
		if info, err := os.Stat(r.path("state", groupsDir)); err != nil || !info.ModTime().Equal(long) {
			t.Errorf("%s: a record was written and dropped, %v: %v", what, info.ModTime(), err)
		}
	}
}

// A group that can no longer be made leaves nothing, since the orchestrator does not know its id.
func TestAGroupThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t)
	image := r.create(createReq("image", 32*mib, fsCap("ext4", multi)))
	gone := "lv-0000000000000000-0000000000000000"
	g := newGroup("g", []string{image.id, gone})
	g.Members[0].Type, g.Members[1].Type = typeImage, typeImage
	if err := r.d.store.putGroup(g); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, r.d.store.dataPath(g.Members[1].ID, typeImage), "of before")
	_, err := r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", image.id, gone))
	wantCode(t, "a volume that is gone", err, codes.NotFound)
	if left, _ := filepath.Glob(r.path("state", "*", "*"+nameHash("g")+"*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	cancelled, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.d.takeGroup(cancelled, newGroup("g", []string{image.id})); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled: %v", err)
	}
	if left, _ := filepath.Glob(r.path("state", "*", "*"+nameHash("g")+"*")); len(left) > 0 {
		t.Errorf("left by a call that was cancelled: %q", left)
	}
}

// Members are snapshots like any other, except that they are made and deleted with their group.
func TestMembersAreSnapshotsOfTheirGroup(t *testing.T) {
	r := newRig(t)
	v, w := r.create(createReq("v", 32*mib, fsCap("", multi))), r.create(createReq("w", 32*mib, fsCap("", multi)))
	alone := r.snap("alone", v.id)
	g := r.cut("g", v.id, w.id)
	id := g.GetGroupSnapshotId()
	check := func(when string) {
		t.Helper()
		list, err := r.ListSnapshots(r.ctx, &csi.ListSnapshotsRequest{})
		groups := map[string]string{}
		for _, e := range list.GetEntries() {
			groups[e.GetSnapshot().GetSnapshotId()] = e.GetSnapshot().GetGroupSnapshotId()
		}
		if err != nil || len(groups) != 3 || groups[alone] != "" || groups[members(g)[0]] != id || groups[members(g)[1]] != id {
			t.Errorf("%s: ListSnapshots = %v, %v", when, list, err)
		}
		one, err := r.GetSnapshot(r.ctx, &csi.GetSnapshotRequest{SnapshotId: members(g)[1]})
		if s := one.GetSnapshot(); err != nil || s.GetGroupSnapshotId() != id || s.GetSourceVolumeId() != w.id || !s.GetReadyToUse() {
			t.Errorf("%s: GetSnapshot = %v, %v", when, one, err)
		}
		all, err := r.GetVolumeGroupSnapshot(r.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: members(g)})
		if err != nil || !slices.Equal(members(all.GetGroupSnapshot()), members(g)) || !all.GetGroupSnapshot().GetReadyToUse() {
			t.Errorf("%s: GetVolumeGroupSnapshot = %v, %v", when, all, err)
		}
	}
	check("when made")
	r.restart()
	check("after a restart")
	again := r.cut("g", w.id, v.id) // in any order
	if again.GetGroupSnapshotId() != id || !slices.Equal(members(again), members(g)) || !again.GetCreationTime().AsTime().Equal(g.GetCreationTime().AsTime()) {
		t.Errorf("the same again is %v, want %v", again, g)
	}
	_, err := r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", v.id))
	wantCode(t, "the same name for other volumes", err, codes.AlreadyExists)
	_, err = r.DeleteSnapshot(r.ctx, &csi.DeleteSnapshotRequest{SnapshotId: members(g)[0]})
	wantCode(t, "deletion of a member alone", err, codes.InvalidArgument)
	for _, ids := range [][]string{nil, members(g)[:1], append(members(g), alone), {members(g)[0], members(g)[0]}} {
		_, err = r.GetVolumeGroupSnapshot(r.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: ids})
		wantCode(t, "get with other snapshots", err, codes.InvalidArgument)
		_, err = r.DeleteVolumeGroupSnapshot(r.ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: ids})
		wantCode(t, "deletion with other snapshots", err, codes.InvalidArgument)
	}
	check("after what was refused")
	slices.Reverse(g.Snapshots) // in any order
	if err := r.uncut(g); err != nil {
		t.Fatal(err)
	}
	_, err = r.GetVolumeGroupSnapshot(r.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: members(g)})
	wantCode(t, "get of what was deleted", err, codes.NotFound)
	_, err = r.GetSnapshot(r.ctx, &csi.GetSnapshotRequest{SnapshotId: members(g)[0]})
	wantCode(t, "get of a member of what was deleted", err, codes.NotFound)
	_, err = r.DeleteSnapshot(r.ctx, &csi.DeleteSnapshotRequest{SnapshotId: members(g)[0]})
	wantCode(t, "deletion of a member of what was deleted", err, codes.OK)
}

// A group whose deletion has begun is not found any more, and the same call completes the deletion.
func TestAGroupWhoseDeletionIsCutOff(t *testing.T) {
	r := newRig(t)
	v, w := r.create(directoryReq("v")), r.create(directoryReq("w"))
	g := r.cut("g", v.id, w.id)
	held := r.d.store.dataPath(members(g)[1], typeDirectory)
	if err := unix.Mount(held, held, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.uncut(g); err == nil {
		t.Error("a member was removed under a mount")
	}
	r.restart()
	_, err := r.GetVolumeGroupSnapshot(r.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members(g)})
	wantCode(t, "get", err, codes.NotFound)
	_, err = r.GetSnapshot(r.ctx, &csi.GetSnapshotRequest{SnapshotId: members(g)[1]})
	wantCode(t, "get of a member", err, codes.NotFound)
	_, err = r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", v.id, w.id))
	wantCode(t, "create", err, codes.Aborted)
	if err := unix.Unmount(held, 0); err != nil {
		t.Fatal(err)
	}
}

func TestGroupRefuses(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap("", multi)))
	parameters := groupReq("g", v.id)
	parameters.Parameters = map[string]string{"a": "b"}
	for what, test := range map[string]struct {
		req  *csi.CreateVolumeGroupSnapshotRequest
		want codes.Code
	}{
		"no name":           {groupReq("", v.id), codes.InvalidArgument},
		"too long a name":   {groupReq(strings.Repeat("g", maxName+1), v.id), codes.InvalidArgument},
		"no volume":         {groupReq("g"), codes.InvalidArgument},
		"an empty id":       {groupReq("g", v.id, ""), codes.InvalidArgument},
		"a volume twice":    {groupReq("g", v.id, v.id), codes.InvalidArgument},
		"no such volume":    {groupReq("g", v.id, "lv-1"), codes.NotFound},
		"unknown parameter": {parameters, codes.InvalidArgument},
	} {
		_, err := r.CreateVolumeGroupSnapshot(r.ctx, test.req)
		wantCode(t, what, err, test.want)
	}
}

// A call for a group excludes every call for its name, its volumes and its members.
func TestAGroupIsAlone(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap("", multi)))
	g := r.cut("g", v.id)
	for _, key := range []string{lockVolume(v.id), lockGroupName("h")} {
		release, err := r.d.locks.tryLock(key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.CreateVolumeGroupSnapshot(r.ctx, groupReq("h", v.id))
		wantCode(t, "create while "+key+" is held", err, codes.Aborted)
		release()
	}
	for _, key := range []string{lockGroup(g.GetGroupSnapshotId()), lockSnapshot(members(g)[0])} {
		release, err := r.d.locks.tryLock(key)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "delete while "+key+" is held", r.uncut(g), codes.Aborted)
		release()
	}
}

// The driver creates nothing in place of a group whose record cannot be read, and does not report its members.
func TestAnUnreadableGroupHarmsNoOther(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	g := r.cut("g", v.id)
	r.stop()
	path := r.path("state", groupsDir, g.GetGroupSnapshotId()+".json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path, string(good[:len(good)/2]))
	r.start()
	_, err = r.CreateVolumeGroupSnapshot(r.ctx, groupReq("g", v.id))
	wantCode(t, "create the same name", err, codes.DataLoss)
	wantCode(t, "delete", r.uncut(g), codes.DataLoss)
	_, err = r.DeleteSnapshot(r.ctx, &csi.DeleteSnapshotRequest{SnapshotId: members(g)[0]})
	wantCode(t, "delete a member", err, codes.DataLoss)
	r.cut("other", v.id)
	r.stop()
	mustWrite(t, path, string(good))
	r.start()
}

func TestGroupServiceIsAnnounced(t *testing.T) {
	r := newRig(t)
	plugin, err := r.GetPluginCapabilities(r.ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil || !slices.ContainsFunc(plugin.GetCapabilities(), func(c *csi.PluginCapability) bool {
		return c.GetService().GetType() == csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
	}) {
		t.Errorf("GetPluginCapabilities = %v, %v", plugin, err)
	}
	groups, err := r.GroupControllerGetCapabilities(r.ctx, &csi.GroupControllerGetCapabilitiesRequest{})
	if err != nil || len(groups.GetCapabilities()) != 1 ||
		groups.GetCapabilities()[0].GetRpc().GetType() != csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT {
		t.Errorf("GroupControllerGetCapabilities = %v, %v", groups, err)
	}
}
