package localdriver

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func TestIdentity(t *testing.T) {
	r := newRig(t)
	info, err := r.GetPluginInfo(r.ctx, &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "local.csi-volmgr.dev" || info.GetVendorVersion() == "" {
		t.Errorf("GetPluginInfo = %v, %v", info, err)
	}
	if probe, err := r.Probe(r.ctx, &csi.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("Probe = %v, %v, want ready", probe, err)
	}
	node, err := r.NodeGetInfo(r.ctx, &csi.NodeGetInfoRequest{})
	want := map[string]string{"topology.local.csi-volmgr.dev/node": "node-1"}
	if err != nil || node.GetNodeId() != "node-1" || fmt.Sprint(node.GetAccessibleTopology().GetSegments()) != fmt.Sprint(want) {
		t.Errorf("NodeGetInfo = %v, %v", node, err)
	}
}

// CreateVolume finds a volume again by its name, and refuses a request that the volume does not fit.
func TestCreateVolumeByName(t *testing.T) {
	r := newRig(t)
	first := createReq("v", 64*mib, fsCap("", multi))
	v := r.create(first)
	again := func(change func(*csi.CreateVolumeRequest)) (*csi.CreateVolumeResponse, error) {
		req := proto.CloneOf(first)
		change(req)
		return r.CreateVolume(r.ctx, req)
	}
	for what, change := range map[string]func(*csi.CreateVolumeRequest){
		"same":             func(*csi.CreateVolumeRequest) {},
		"less":             func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = mib },
		"no size":          func(q *csi.CreateVolumeRequest) { q.CapacityRange = nil },
		"limit that fits":  func(q *csi.CreateVolumeRequest) { q.CapacityRange.LimitBytes = 64 * mib },
		"type spelled out": func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"type": "image"} },
	} {
		if resp, err := again(change); err != nil || resp.GetVolume().GetVolumeId() != v.id || resp.GetVolume().GetCapacityBytes() != 64*mib {
			t.Errorf("create again, %s = %v, %v, want volume %s", what, resp, err, v.id)
		}
	}
	for what, change := range map[string]func(*csi.CreateVolumeRequest){
		"more":           func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = 65 * mib },
		"lower limit":    func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{LimitBytes: 32 * mib} },
		"other type":     func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"type": "directory"} },
		"other fs":       func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = fsCap("ext4", multi) },
		"with a source":  func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume(v.id + "x") },
		"a source again": func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("snap-1") },
	} {
		_, err := again(change)
		wantCode(t, "create again, "+what, err, codes.AlreadyExists)
	}
	// A volume created later under the same name is another volume.
	v.remove()
	if second := r.create(first); second.id == v.id {
		t.Errorf("a deleted volume's id %s was given again", v.id)
	}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func TestCreateVolumeRefuses(t *testing.T) {
	r := newRig(t)
	huge := int64(1) << 60
	for what, test := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"no name":             {func(q *csi.CreateVolumeRequest) { q.Name = "" }, codes.InvalidArgument},
		"4 KiB of name":       {func(q *csi.CreateVolumeRequest) { q.Name = strings.Repeat("n", 4096) }, codes.InvalidArgument},
		"no capability":       {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = nil }, codes.InvalidArgument},
		"empty capability":    {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = []*csi.VolumeCapability{{}} }, codes.InvalidArgument},
		"unknown type":        {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"type": "tape"} }, codes.InvalidArgument},
		"unknown parameter":   {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"tpye": "image"} }, codes.InvalidArgument},
		"unknown file system": {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = fsCap("zfs", multi) }, codes.InvalidArgument},
		"many nodes": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument},
		"mutable parameters": {func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"a": "b"} }, codes.InvalidArgument},
		"directory as block": {func(q *csi.CreateVolumeRequest) {
			q.Parameters = map[string]string{"type": "directory"}
			q.VolumeCapabilities[0] = blockCap(multi)
		}, codes.InvalidArgument},
		"negative size":       {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument},
		"limit below size":    {func(q *csi.CreateVolumeRequest) { q.CapacityRange.LimitBytes = mib }, codes.InvalidArgument},
		"limit below any xfs": {func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{LimitBytes: mib} }, codes.OutOfRange},
		"limit not of 4 KiB": {func(q *csi.CreateVolumeRequest) {
			q.CapacityRange = &csi.CapacityRange{RequiredBytes: 20*mib + 1, LimitBytes: 20*mib + 1}
		}, codes.OutOfRange},
		"more than the disk": {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = huge }, codes.OutOfRange},
		"more than a file":   {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = 1<<63 - 1 }, codes.OutOfRange},
		"no such volume":     {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume("lv-1") }, codes.NotFound},
		"no such snapshot":   {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("snap-1") }, codes.NotFound},
		"source of no kind":  {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument},
		"another node": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.local.csi-volmgr.dev/node": "node-2"}}}}
		}, codes.ResourceExhausted},
	} {
		req := createReq("v", 64*mib, fsCap("", multi))
		test.change(req)
		_, err := r.CreateVolume(r.ctx, req)
		wantCode(t, what, err, test.want)
	}
	if list, err := r.ListVolumes(r.ctx, &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 0 {
		t.Errorf("ListVolumes = %v, %v, want nothing left", list, err)
	}
}

// An image takes no space until it is written, but GetCapacity subtracts what it may still take.
func TestSpaceIsPromisedOnce(t *testing.T) {
	r := newRig(t)
	// A small disk of known size, so that files of other programs do not count.
	disk := r.create(createReq("disk", 512*mib, fsCap("ext4", multi))).up()
	small := &rig{t: t, ctx: r.ctx, dir: disk}
	small.start()
	defer func() { small.stop() }()
	capacity := func() int64 {
		resp, err := small.GetCapacity(small.ctx, &csi.GetCapacityRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetAvailableCapacity()
	}
	before := capacity()
	a, err := small.CreateVolume(small.ctx, createReq("a", 300*mib, fsCap("", multi)))
	if err != nil {
		t.Fatal(err)
	}
	if used := before - capacity(); used < 299*mib || used > 301*mib {
		t.Errorf("300 MiB promised took %d MiB of the capacity", used/mib)
	}
	_, err = small.CreateVolume(small.ctx, createReq("b", 300*mib, fsCap("", multi)))
	wantCode(t, "a second 300 MiB", err, codes.ResourceExhausted)
	_, err = small.ControllerExpandVolume(small.ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: a.GetVolume().GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 505 * mib},
	})
	if err == nil {
		t.Error("expanding beyond the space left worked")
	}
	if _, err := small.DeleteVolume(small.ctx, &csi.DeleteVolumeRequest{VolumeId: a.GetVolume().GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	if got := capacity(); before-got > mib {
		t.Errorf("capacity is %d MiB after deletion, want %d as before", got/mib, before/mib)
	}
	resp, err := small.GetCapacity(small.ctx, &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{
		Segments: map[string]string{"topology.local.csi-volmgr.dev/node": "node-2"},
	}})
	if err != nil || resp.GetAvailableCapacity() != 0 {
		t.Errorf("capacity elsewhere = %v, %v, want 0", resp, err)
	}
}

func TestImagesAreSparse(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", gib, fsCap("", multi)))
	v.up()
	n, err := allocatedBytes(r.d.store.dataPath(v.id, typeImage))
	if err != nil || n > 100*mib {
		t.Errorf("a formatted volume of 1 GiB takes %d MiB, %v", n/mib, err)
	}
}

func TestExpandRefuses(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	expand := func(id string, c *csi.CapacityRange, cap *csi.VolumeCapability) error {
		_, err := r.ControllerExpandVolume(r.ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: c, VolumeCapability: cap})
		return err
	}
	wantCode(t, "no such volume", expand("lv-1", &csi.CapacityRange{RequiredBytes: 1}, nil), codes.NotFound)
	wantCode(t, "no range", expand(v.id, nil, nil), codes.InvalidArgument)
	wantCode(t, "an empty range", expand(v.id, &csi.CapacityRange{}, nil), codes.InvalidArgument)
	wantCode(t, "limit below the size it has", expand(v.id, &csi.CapacityRange{LimitBytes: mib}, nil), codes.OutOfRange)
	wantCode(t, "more than the disk", expand(v.id, &csi.CapacityRange{RequiredBytes: 1 << 60}, nil), codes.OutOfRange)
	wantCode(t, "for many nodes", expand(v.id, &csi.CapacityRange{RequiredBytes: 1}, fsCap("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)), codes.InvalidArgument)
	// A request for less never shrinks the volume.
	v.expand(64 * mib)
	if _, err := r.ControllerExpandVolume(r.ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: mib}}); err != nil {
		t.Errorf("expand to less than it has = %v, want what it has", err)
	}
	if info, err := os.Stat(r.d.store.dataPath(v.id, typeImage)); err != nil || info.Size() != 64*mib {
		t.Errorf("image is %v, %v, want 64 MiB", info, err)
	}
}

func TestValidateVolumeCapabilities(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	validate := func(c *csi.VolumeCapability) *csi.ValidateVolumeCapabilitiesResponse {
		resp, err := r.ValidateVolumeCapabilities(r.ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.id, VolumeCapabilities: []*csi.VolumeCapability{c}})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := validate(fsCap("", multi)); resp.GetConfirmed() == nil {
		t.Errorf("a file system was not confirmed: %v", resp)
	}
	for _, c := range []*csi.VolumeCapability{blockCap(multi), fsCap("zfs", multi), fsCap("", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)} {
		if resp := validate(c); resp.GetConfirmed() != nil || resp.GetMessage() == "" {
			t.Errorf("%v = %v, want no confirmation and a reason", c, resp)
		}
	}
}

// Every volume is on exactly one page, even if others are deleted between pages.
func TestListVolumesInPages(t *testing.T) {
	r := newRig(t)
	var ids []string
	for i := range 7 {
		ids = append(ids, r.create(directoryReq(fmt.Sprint(i))).id)
	}
	slices.Sort(ids)
	var got []string
	token := ""
	for {
		resp, err := r.ListVolumes(r.ctx, &csi.ListVolumesRequest{MaxEntries: 3, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.GetEntries() {
			got = append(got, e.GetVolume().GetVolumeId())
		}
		if token = resp.GetNextToken(); token == "" {
			break
		}
		if len(got) == 3 {
			if _, err := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: got[2]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("pages hold %q, want %q", got, ids)
	}
	_, err := r.ListVolumes(r.ctx, &csi.ListVolumesRequest{StartingToken: "7"})
	wantCode(t, "a token never given", err, codes.Aborted)
	_, err = r.ListVolumes(r.ctx, &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, "a negative page", err, codes.InvalidArgument)
}

func TestControllerGetVolume(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	resp, err := r.ControllerGetVolume(r.ctx, &csi.ControllerGetVolumeRequest{VolumeId: v.id})
	if err != nil || resp.GetVolume().GetVolumeId() != v.id || len(resp.GetVolume().GetAccessibleTopology()) != 1 {
		t.Errorf("ControllerGetVolume = %v, %v", resp, err)
	}
	_, err = r.ControllerGetVolume(r.ctx, &csi.ControllerGetVolumeRequest{VolumeId: "lv-1"})
	wantCode(t, "no such volume", err, codes.NotFound)
}

func TestDeletingADirectoryFollowsNothing(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	target := v.up()
	if err := os.Mkdir(r.path("precious"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, r.path("precious", "file"), "text")
	if err := os.Symlink(r.path("precious"), target+"/link"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, target+"/file", "text")
	v.down()
	// A mount inside the volume's data stops the deletion.
	inner := r.d.store.dataPath(v.id, typeDirectory) + "/inner"
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.path("precious"), inner, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	_, err := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	if err == nil {
		t.Error("DeleteVolume worked with something mounted inside")
	}
	if err := unix.Unmount(inner, 0); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r.path("precious", "file"), "text")
	if _, err := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id}); err != nil {
		t.Errorf("DeleteVolume again: %v", err)
	}
	wantFile(t, r.path("precious", "file"), "text")
}

// Many volumes at once: what the directory type is for.
func TestManyDirectoriesAtOnce(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			resp, err := r.CreateVolume(r.ctx, directoryReq(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
				return
			}
			v := vol{r: r, id: resp.GetVolume().GetVolumeId(), cap: fsCap("", multi)}
			target := r.path("target-" + v.id)
			for _, step := range []func() error{
				v.stageErr, func() error { return v.publishErr(target, false) },
				func() error { return v.unpublishErr(target) }, v.unstageErr,
				func() error { _, err := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id}); return err },
			} {
				if err := step(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, sub := range []string{recordsDir, attachedDir, dataDir} {
		if left, err := os.ReadDir(r.path("state", sub)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", sub, left, err)
		}
	}
}

func TestErrorsNameWhatTheyAreAbout(t *testing.T) {
	r := newRig(t)
	_, err := r.CreateVolume(r.ctx, createReq("v", 1<<60, fsCap("", multi)))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(int64(1)<<60)) {
		t.Errorf("error %v does not name the size", err)
	}
}
