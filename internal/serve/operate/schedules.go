package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/schedule"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ScheduleLabel is the label of a VolumeSnapshot that names the schedule that made it.
const ScheduleLabel = "csi-volmgr.dev/schedule"

// Schedules runs schedules of snapshots on top of Objects (server.Schedules). Any goroutine may call its
// methods.
type Schedules struct {
	*schedule.Keeper
	objects *Objects
}

// newSchedules returns the schedules. They do nothing until Run.
func newSchedules(o *Objects, journal schedule.Journal) *Schedules {
	s := &Schedules{objects: o}
	s.Keeper = schedule.New(schedule.Config{
		Journal: journal, Snapshots: o.knownSnapshots, Volume: o.volumeOf, Changed: o.c.Changed, Make: o.makeSnapshot,
		Delete: o.dropSnapshot, Logger: o.c.Logger,
	})
	return s
}

// knownSnapshots returns the snapshots that the sources and the controller know, and whether every source
// has spoken. It asks both, because the controller learns of an applied snapshot a moment later.
func (o *Objects) knownSnapshots() (map[string]map[string]schedule.Known, bool) {
	select {
	case <-o.c.Controller.Loaded():
	default:
		return nil, false
	}
	if len(o.c.Silent()) > 0 {
		return nil, false
	}
	all := map[string]map[string]schedule.Known{}
	add := func(namespace, name string, k schedule.Known) {
		if all[namespace] == nil {
			all[namespace] = map[string]schedule.Known{}
		}
		all[namespace][name] = k
	}
	for _, obj := range o.c.Catalog.Objects(resolve.KindSnapshot) {
		if key, err := resolve.KeyOf(obj); err == nil {
			add(key.Namespace, key.Name, schedule.Known{})
		}
	}
	for _, key := range o.c.Catalog.Unreadable(resolve.KindSnapshot) {
		add(key.Namespace, key.Name, schedule.Known{})
	}
	for _, s := range o.c.Controller.Snapshots() {
		add(s.Snapshot.Namespace, s.Snapshot.Name, schedule.Known{
			Ready: s.Ready, Deleting: s.Phase == controller.Deleting, Volume: schedule.Volume{ID: s.Volume, Mark: s.Mark},
			Kept: s.ReclaimPolicy == controller.Retain,
		})
	}
	return all, true
}

// volumeOf returns the volume that a claim has now, or none if it has none of a CSI driver.
func (o *Objects) volumeOf(namespace, claim string) (v schedule.Volume) {
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: claim}
	c, ok := o.c.Catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		return v
	}
	pv := o.c.Catalog.VolumeOf(c)
	if pv == nil || pv.Spec.CSI == nil {
		return v
	}
	v.ID = state.SharedID(state.DriverName(pv.Spec.CSI.Driver), pv.Spec.CSI.VolumeHandle)
	switch is, _ := o.c.Controller.Claim(made.ClaimKey(key)); {
	case is.Volume != nil && is.Volume.ID() == v.ID:
		v.Mark = is.Volume.Mark
	case is.Volume == nil && is.Begun: // the catalog still has the volume before
		v.ID = ""
	}
	return v
}

// makeSnapshot applies the VolumeSnapshot that is due by a schedule.
func (o *Objects) makeSnapshot(ctx context.Context, s schedule.Schedule, name string) error {
	obj := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name, Labels: map[string]string{ScheduleLabel: s.Name},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &s.Claim}},
	}
	if s.Class != "" {
		obj.Spec.VolumeSnapshotClassName = &s.Class
	}
	manifest.Default(obj)
	objects := []runtime.Object{obj}
	if err := o.checkOwned(objects); err != nil {
		return err
	}
	_, err := o.c.API.Apply(ctx, objects)
	return err
}

// dropSnapshot deletes a snapshot beyond the number that the schedule keeps.
func (o *Objects) dropSnapshot(ctx context.Context, s schedule.Schedule, name string) error {
	if o.c.Lost != nil && o.c.Lost() { // the schedule may have been changed since, to keep more
		return fmt.Errorf("schedule %s deletes no snapshot before csi-volmgr journal accept: the journal may have lost "+
			"records", s.Name)
	}
	by := audit.By{UID: uint32(os.Geteuid()), PID: int32(os.Getpid()), Program: "schedule " + s.Name}
	note, err := o.DeleteSnapshot(ctx, by, server.SnapshotDeletion{
		Namespace: s.Namespace, Name: name, Reason: fmt.Sprintf("schedule %s keeps %d", s.Name, s.Keep),
	})
	if err == nil && note != "" {
		return schedule.ErrKept
	}
	// Its object may be gone already: a person deleted it, or the schedule could not record that it did.
	was, _ := o.c.Controller.Snapshot(controller.Key{Namespace: s.Namespace, Name: name})
	if err != nil && was.Phase == controller.Released && was.ReclaimPolicy == controller.Retain {
		return schedule.ErrKept
	}
	if errors.Is(err, server.ErrNotFound) {
		return nil
	}
	return err
}

// Schedules lists the schedules (server.Schedules).
func (s *Schedules) Schedules(ctx context.Context) ([]server.ScheduleStatus, error) {
	kept, err := s.Keeper.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var all []server.ScheduleStatus
	for _, k := range kept {
		all = append(all, server.ScheduleStatus{
			Namespace: k.Namespace, Name: k.Name, Claim: k.Claim, Class: k.Class, Every: string(k.Every), Keep: k.Keep,
			Next: k.Next, Last: k.Last, Snapshots: k.Snapshots, Waits: k.Waits, Left: k.Left, Note: leftNote(k),
		})
	}
	return all, nil
}

// leftNote says which snapshots left a schedule, or returns "".
func leftNote(k schedule.Status) string {
	if len(k.Left) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of another volume than claim %s has now left the schedule and stay until you delete them: %s",
		len(k.Left), k.Claim, strings.Join(k.Left, ", "))
}

// SetSchedule creates or changes a schedule of a claim, which must exist (server.Schedules).
func (s *Schedules) SetSchedule(ctx context.Context, r server.ScheduleRequest) (note string, err error) {
	want := schedule.Schedule{
		Namespace: r.Namespace, Name: r.Name, Claim: r.Claim, Class: r.Class, Every: schedule.Every(r.Every), Keep: r.Keep,
	}
	if err := want.Check(); err != nil {
		return "", fmt.Errorf("%w: schedule %s/%s: %w", server.ErrInvalid, r.Namespace, r.Name, err)
	}
	key := source.Key{Kind: resolve.KindClaim, Namespace: r.Namespace, Name: r.Claim}
	if _, ok := s.objects.c.Catalog.Get(key).(*corev1.PersistentVolumeClaim); !ok {
		return "", fmt.Errorf("%w: schedule %s/%s: %s is not known here", server.ErrNotFound, r.Namespace, r.Name, key)
	}
	if s.objects.ofCluster(key) {
		return "", fmt.Errorf("%w: schedule %s/%s: claim %s/%s is the cluster's, whose external-snapshotter makes its "+
			"snapshots: have a CronJob there create a VolumeSnapshot (kubectl create -f FILE)", server.ErrConflict, r.Namespace,
			r.Name, r.Namespace, r.Claim)
	}
	deletes, err := s.Set(ctx, want, r.DeleteBeyond)
	switch {
	case errors.Is(err, schedule.ErrUnreadable):
		err = fmt.Errorf("%w: %w; delete the schedule first", server.ErrConflict, err)
	case errors.Is(err, schedule.ErrOtherClaim):
		err = fmt.Errorf("%w: %w", server.ErrConflict, err)
	case errors.Is(err, schedule.ErrDeletes):
		err = fmt.Errorf("%w: %w; to have them deleted, give it with --yes (deleteBeyond in a request)",
			server.ErrConflict, err)
	case len(deletes) > 0:
		note = fmt.Sprintf("%d beyond %d are deleted: %s", len(deletes), r.Keep, strings.Join(deletes, ", "))
	}
	return note, err
}

// RemoveSchedule ends a schedule (server.Schedules).
func (s *Schedules) RemoveSchedule(ctx context.Context, namespace, name string) error {
	err := s.Remove(ctx, namespace, name)
	if errors.Is(err, schedule.ErrNotFound) {
		return fmt.Errorf("%w: %w", server.ErrNotFound, err)
	}
	return err
}
