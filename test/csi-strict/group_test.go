package csistrict

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func cutGroup(sources ...string) *csi.CreateVolumeGroupSnapshotRequest {
	return &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: sources}
}

// withGroup is a court whose model has group "g" of v and w, with the members 1 and 2.
func withGroup(s Script) *court {
	k := newCourt(s)
	k.model.Groups = map[string]*Group{"g": {ID: "g", Sources: []string{"v", "w"}, Snapshots: []string{"1", "2"}}}
	k.model.Snapshots = map[string]*Snapshot{"1": {ID: "1", Source: "v", Group: "g"}, "2": {ID: "2", Source: "w", Group: "g"}, "3": {ID: "3", Source: "v"}}
	return k
}

// Each case breaks the rule and gets the code as its answer, or breaks none.
func TestRulesOfGroups(t *testing.T) {
	remove := func(id string, snapshots ...string) proto.Message {
		return &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots}
	}
	show := func(id string, snapshots ...string) proto.Message {
		return &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots}
	}
	var many []string
	for i := range maxMap / maxString * 2 {
		many = append(many, fmt.Sprint(i, strings.Repeat("x", maxString-8)))
	}
	long := strings.Repeat("x", maxString+1)
	named := cutGroup(many...)
	named.Name = "h"
	longName := cutGroup("v")
	longName.Name = long
	large := cutGroup("v", "w")
	large.Parameters = map[string]string{"k": strings.Repeat("x", maxMap)}
	secret := cutGroup("v", "w")
	secret.Secrets = map[string]string{"k": "x"}
	noSecrets := Script{Secrets: map[string]map[string]string{}}
	none := Script{Without: []string{groupService}}
	other := Script{Without: []string{groupSnapshots}}
	for name, tc := range map[string]struct {
		script Script
		req    proto.Message
		rule   string
		code   codes.Code
	}{
		"create":                          {Script{}, cutGroup("v", "w"), "", 0},
		"create in another order":         {Script{}, cutGroup("w", "v"), "", 0},
		"create of many":                  {Script{}, named, "", 0},
		"create of other volumes":         {Script{}, cutGroup("v"), "N-59", codes.AlreadyExists},
		"create without a name":           {Script{}, &csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: []string{"v"}}, "N-24", codes.InvalidArgument},
		"create without volumes":          {Script{}, &csi.CreateVolumeGroupSnapshotRequest{Name: "h"}, "N-24", codes.InvalidArgument},
		"create with an empty id":         {Script{}, &csi.CreateVolumeGroupSnapshotRequest{Name: "h", SourceVolumeIds: []string{"v", ""}}, "N-24", codes.InvalidArgument},
		"create with a volume twice":      {Script{}, &csi.CreateVolumeGroupSnapshotRequest{Name: "h", SourceVolumeIds: []string{"v", "w", "v"}}, "N-24", codes.InvalidArgument},
		"create with a long name":         {Script{}, longName, "N-23", codes.InvalidArgument},
		"create with a long id":           {Script{}, &csi.CreateVolumeGroupSnapshotRequest{Name: "h", SourceVolumeIds: []string{long}}, "N-23", codes.InvalidArgument},
		"create with large parameters":    {Script{}, large, "N-23", codes.InvalidArgument},
		"create with a secret":            {noSecrets, secret, "N-34", codes.Unauthenticated},
		"create without the service":      {none, cutGroup("v", "w"), "N-13", codes.Unimplemented},
		"create without the ability":      {other, cutGroup("v", "w"), "N-13", codes.Unimplemented},
		"delete":                          {Script{}, remove("g", "2", "1"), "", 0},
		"delete of none":                  {Script{}, remove("h", "1"), "", 0},
		"delete without an id":            {Script{}, remove("", "1"), "N-24", codes.InvalidArgument},
		"delete of none without members":  {Script{}, remove("h"), "N-24", codes.OK},
		"delete without one":              {Script{}, remove("g", "1"), ruleMembers, codes.InvalidArgument},
		"delete with another":             {Script{}, remove("g", "1", "2", "3"), ruleMembers, codes.InvalidArgument},
		"delete with one twice":           {Script{}, remove("g", "1", "1"), ruleMembers, codes.InvalidArgument},
		"delete without the ability":      {other, remove("g", "1", "2"), "N-13", codes.Unimplemented},
		"get":                             {Script{}, show("g", "1", "2"), "", 0},
		"get with another":                {Script{}, show("g", "1", "3"), ruleMembers, codes.InvalidArgument},
		"get without an id":               {Script{}, show("", "1"), "N-24", codes.InvalidArgument},
		"get without the ability":         {other, show("g", "1", "2"), "N-13", codes.Unimplemented},
		"delete of a member":              {Script{}, &csi.DeleteSnapshotRequest{SnapshotId: "1"}, ruleAlone, codes.InvalidArgument},
		"delete of a snapshot of its own": {Script{}, &csi.DeleteSnapshotRequest{SnapshotId: "3"}, "", 0},
		"abilities":                       {other, &csi.GroupControllerGetCapabilitiesRequest{}, "", 0},
		"abilities without the service":   {none, &csi.GroupControllerGetCapabilitiesRequest{}, "N-13", codes.Unimplemented},
	} {
		k := withGroup(tc.script)
		c := k.arrive(tc.req, context.Background(), seen{})
		switch {
		case tc.rule == "" && len(c.found) > 0:
			t.Errorf("%s: %+v", name, c.found)
		case tc.rule != "" && (len(c.found) != 1 || c.found[0].rule != tc.rule || c.found[0].code != tc.code):
			t.Errorf("%s: %+v, want %s, answered %v", name, c.found, tc.rule, tc.code)
		}
	}
}

// A group is not made from a volume that is being changed or copied to a snapshot, nor the other way round.
func TestAGroupIsAlone(t *testing.T) {
	for _, other := range []proto.Message{
		&csi.CreateSnapshotRequest{Name: "cut", SourceVolumeId: "w"},
		&csi.CreateVolumeGroupSnapshotRequest{Name: "other", SourceVolumeIds: []string{"u", "w"}},
		&csi.DeleteVolumeRequest{VolumeId: "w"},
		&csi.ControllerExpandVolumeRequest{VolumeId: "w"},
		&csi.ControllerModifyVolumeRequest{VolumeId: "w", MutableParameters: map[string]string{"a": "b"}},
	} {
		for _, pair := range [][2]proto.Message{{cutGroup("v", "w"), other}, {other, cutGroup("v", "w")}} {
			k := newCourt(Script{With: []string{"MODIFY_VOLUME"}})
			first := k.arrive(pair[0], context.Background(), seen{})
			second := k.arrive(pair[1], context.Background(), seen{})
			if !slices.ContainsFunc(second.found, func(f finding) bool { return f.rule == "N-21" }) {
				t.Errorf("%T while %T: %+v", pair[1], pair[0], second.found)
			}
			k.end(second, codes.OK, true, false, k.now)
			k.end(first, codes.OK, true, false, k.now)
			if got := k.rulesOf(pair[1], codes.OK, true); slices.Contains(got, "N-21") {
				t.Errorf("%T after %T: %q", pair[1], pair[0], got)
			}
		}
	}
	k := newCourt(Script{})
	k.arrive(cutGroup("v"), context.Background(), seen{})
	if got := k.rulesOf(&csi.ControllerExpandVolumeRequest{VolumeId: "w"}, codes.OK, true); slices.Contains(got, "N-21") {
		t.Errorf("another volume: %q", got)
	}
}

// One call changes a group at a time; a look at it changes nothing.
func TestOneCallAGroup(t *testing.T) {
	remove := &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: []string{"1", "2"}}
	show := &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: []string{"1", "2"}}
	k := withGroup(Script{})
	k.arrive(cutGroup("v", "w"), context.Background(), seen{})
	if got := k.rulesOf(show, codes.OK, true); len(got) > 0 {
		t.Errorf("a look at a group that is being made: %q", got)
	}
	if got := k.rulesOf(remove, codes.OK, true); !slices.Contains(got, "N-21") {
		t.Errorf("the deletion of a group that is being made: %q", got)
	}
}

// groupDriver is a driver with volumes v and w, whose data say which they are.
func groupDriver(t *testing.T, without ...string) (*Driver, *groupController) {
	t.Helper()
	d, err := New(Config{Name: "strict.example.com", NodeID: "n", StateDir: t.TempDir(), Without: without})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v", "w"} {
		req := &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability()}}
		if _, err := (&controller{driver: d}).CreateVolume(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.dataDir(name), "file"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d, &groupController{driver: d}
}

// All members of a group are made, or none; a volume can be made from each; they are deleted together.
func TestAGroupIsAllOrNone(t *testing.T) {
	d, s := groupDriver(t)
	if _, err := s.CreateVolumeGroupSnapshot(t.Context(), cutGroup("v", "nope")); status.Code(err) != codes.NotFound {
		t.Errorf("a group of what is not there: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.CreateVolumeGroupSnapshot(cancelled, cutGroup("v", "w")); err == nil {
		t.Error("a call that was cancelled was answered OK")
	}
	if left, _ := filepath.Glob(filepath.Join(d.cfg.StateDir, "snapshots", "*")); len(left) > 0 || len(d.judge.model.Snapshots) > 0 {
		t.Errorf("left of groups that failed: %q, %v", left, d.judge.model.Snapshots)
	}
	made, err := s.CreateVolumeGroupSnapshot(t.Context(), cutGroup("v", "w"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.CreateVolumeGroupSnapshot(t.Context(), cutGroup("w", "v"))
	if err != nil || !proto.Equal(made, again) {
		t.Errorf("the same again: %v, %v, want %v", again, err, made)
	}
	if _, err := s.CreateVolumeGroupSnapshot(t.Context(), cutGroup("v")); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name for other volumes: %v", err)
	}
	list, err := (&controller{driver: d}).ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	if err != nil || len(list.GetEntries()) != 2 {
		t.Fatalf("ListSnapshots: %v, %v", list, err)
	}
	var ids []string
	for _, m := range made.GetGroupSnapshot().GetSnapshots() {
		ids = append(ids, m.GetSnapshotId())
		from, err := d.sourceOf(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: m.GetSnapshotId()}}})
		if err != nil || m.GetGroupSnapshotId() != "g" || !m.GetReadyToUse() {
			t.Errorf("member %v: %v", m, err)
		}
		if b, err := os.ReadFile(filepath.Join(from.dir, filepath.Base(d.dataDir("v")), "file")); err != nil || string(b) != m.GetSourceVolumeId() {
			t.Errorf("member of %s holds %q, %v", m.GetSourceVolumeId(), b, err)
		}
	}
	if err := d.save(); err != nil {
		t.Fatal(err)
	}
	if model, err := ReadModel(d.cfg.StateDir); err != nil || !slices.Equal(model.Groups["g"].Snapshots, ids) {
		t.Errorf("the model that is read is %v, %v", model.Groups, err)
	}
	got, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: ids})
	if err != nil || !proto.Equal(got.GetGroupSnapshot(), made.GetGroupSnapshot()) {
		t.Errorf("GetVolumeGroupSnapshot: %v, %v", got, err)
	}
	for range 2 {
		if _, err := s.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: ids}); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(d.cfg.StateDir, "snapshots", "*")); len(left) > 0 || len(d.judge.model.Snapshots) > 0 {
		t.Errorf("left of a group that was deleted: %q, %v", left, d.judge.model.Snapshots)
	}
	if _, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: ids}); status.Code(err) != codes.NotFound {
		t.Errorf("GetVolumeGroupSnapshot of what was deleted: %v", err)
	}
}

// The driver reports its abilities for groups, and refuses calls for those that it lacks.
func TestGroupAbilities(t *testing.T) {
	for _, tc := range []struct {
		without      []string
		service, can bool
	}{
		{nil, true, true},
		{[]string{groupSnapshots}, true, false},
		{[]string{groupService}, false, true},
	} {
		d, s := groupDriver(t, tc.without...)
		plugin, err := (&identity{driver: d}).GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
		service := slices.ContainsFunc(plugin.GetCapabilities(), func(c *csi.PluginCapability) bool {
			return c.GetService().GetType() == csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
		})
		groups, groupsErr := s.GroupControllerGetCapabilities(t.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
		if err != nil || groupsErr != nil || service != tc.service || len(groups.GetCapabilities()) == 1 != tc.can {
			t.Errorf("without %q: service %v, abilities %v, %v, %v", tc.without, service, groups.GetCapabilities(), err, groupsErr)
		}
	}
}

// The driver serves the service at its socket, and its verdict is in the transcript.
func TestGroupsAreServedAndJudged(t *testing.T) {
	d, _ := groupDriver(t)
	client := csi.NewGroupControllerClient(&direct{d: d})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.CreateVolumeGroupSnapshot(ctx, cutGroup("v", "w")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: []string{"x"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a deletion with another snapshot: %v", err)
	}
	events, err := ReadTranscript(d.cfg.StateDir)
	if breaches := Breaches(events); err != nil || len(breaches) != 1 || breaches[0].Rule != ruleMembers {
		t.Errorf("breaches: %+v, %v", breaches, err)
	}
}
