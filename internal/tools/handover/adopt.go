package handover

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Abilities is what a driver that answered can do.
type Abilities struct {
	// Stage is STAGE_UNSTAGE_VOLUME, and MountGroup is VOLUME_MOUNT_GROUP.
	Stage, MountGroup bool
}

// Input is what is known about a node before its volumes are taken over.
type Input struct {
	Layout state.Layout
	Disk   Disk
	// Pods contains all pods that the sources list.
	Pods map[state.PodUID]state.PodWant
	// Journal contains the existing records.
	Journal map[state.VolumeID]state.Volume
	// Drivers contains the drivers that answered.
	Drivers map[state.DriverName]Abilities
}

// Takeover is the result of Adopt: what to do, and what prevents it.
type Takeover struct {
	// Records must be committed atomically.
	Records map[state.VolumeID]state.Volume `json:"-"`
	// Items describes the outcome for each path.
	Items []Item `json:"items,omitempty"`
	// Refusals lists the obstacles. Nothing is taken over while there is one that no reason
	// overrules.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Empty lists directories that are useless once the records are committed. A kubelet creates
	// one for each volume, even if the driver does not stage.
	Empty []string `json:"-"`
}

// Item is the outcome for one path on the disk.
type Item struct {
	Path   string         `json:"path"`
	Volume state.VolumeID `json:"volume,omitempty"`
	Pod    state.PodUID   `json:"pod,omitempty"`
	What   string         `json:"what"`
}

// Refusal is an obstacle to a takeover.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Overrulable means that a person may overrule the refusal with a reason. What is lost then
	// belongs to a pod that no source wants.
	Overrulable bool `json:"overrulable,omitempty"`
}

// Against joins the refusals that the reason does not overrule. reason may be ""; the result is ""
// if there is none.
func Against(refusals []Refusal, reason string) string {
	var all []string
	for _, r := range refusals {
		if !r.Overrulable || reason == "" {
			all = append(all, r.Path+": "+r.Why)
		}
	}
	return strings.Join(all, "; ")
}

// Texts for the items of a takeover.
const (
	takenMounted = "taken over as it is mounted"
	takenDir     = "taken over as it is"
	takenUnsure  = "taken over as possibly incomplete: the daemon repeats the call if the volume is wanted, " +
		"and undoes it otherwise"
	leftNothing = "left in place: nothing is mounted there, and nothing says which volume it belonged to"
	leftNoStage = "removed if empty: the driver does not stage"
)

// Adopt returns records for the volumes that a kubelet left on the node. A call whose effect the
// kernel shows becomes present, and one whose effect it does not show becomes entering. Adopt skips
// everything that the journal already contains, so it may be repeated.
func Adopt(in Input) Takeover {
	a := &adoption{
		Input: in, out: Takeover{Records: map[state.VolumeID]state.Volume{}},
		at: map[string]state.VolumeWant{}, by: map[state.VolumeID]state.VolumeWant{}, claimed: map[string]bool{},
		fresh: map[state.PodUID][]string{},
	}
	for _, uid := range slices.Sorted(maps.Keys(in.Pods)) {
		for _, w := range in.Pods[uid].Volumes {
			if !w.Unresolved() {
				a.at[w.Mount.Target], a.by[w.ID] = w, w
			}
		}
	}
	a.claimKnown()
	for _, v := range in.Disk.Volumes {
		a.adoptVolume(v)
	}
	for _, b := range in.Disk.Blocks {
		a.adoptBlock(b)
	}
	for _, d := range in.Disk.Devices {
		a.checkDevice(d)
	}
	for _, s := range in.Disk.Staged {
		a.adoptStage(s)
	}
	a.refuseUnlisted()
	a.refuseStrays()
	slices.SortStableFunc(a.out.Items, func(p, q Item) int { return cmp.Compare(p.Path, q.Path) })
	slices.SortStableFunc(a.out.Refusals, func(p, q Refusal) int { return cmp.Compare(p.Path, q.Path) })
	return a.out
}

// adoption is the state of one call of Adopt.
type adoption struct {
	Input
	out Takeover
	// at maps targets, and by volume ids, to the pods' wants.
	at map[string]state.VolumeWant
	by map[state.VolumeID]state.VolumeWant
	// claimed holds the paths that a record explains.
	claimed map[string]bool
	// fresh maps each pod with a newly adopted volume to the names of its emptyDirs that contain
	// files.
	fresh map[state.PodUID][]string
}

func (a *adoption) refuse(path, format string, args ...any) {
	a.out.Refusals = append(a.out.Refusals, Refusal{Path: path, Why: fmt.Sprintf(format, args...)})
}

func (a *adoption) addItem(i Item) { a.out.Items = append(a.out.Items, i) }

// claimKnown claims the paths that the journal's records explain.
func (a *adoption) claimKnown() {
	for _, v := range a.Journal {
		if v.Stage.Phase != state.Absent {
			a.claimed[v.Spec.StagePath] = true
		}
		for _, m := range v.Mounts {
			if m.Phase != state.Absent {
				a.claimed[m.Target] = true
			}
		}
	}
}

// record returns the volume's current record; fresh means that there was none.
func (a *adoption) record(id state.VolumeID) (v state.Volume, fresh bool) {
	if v, ok := a.out.Records[id]; ok {
		return v, false
	}
	if v, ok := a.Journal[id]; ok && !v.Clear() {
		return v, false
	}
	return state.Volume{ID: id}, true
}

// found is a pod's volume with everything that a record needs.
type found struct {
	id    state.VolumeID
	spec  state.Spec
	mount state.Mount
	want  state.VolumeWant // zero if no pod wants it
	path  string           // for people
}

// add adds a pod's volume to its record. It calls stage only for a new record, to set how the
// volume is staged.
func (a *adoption) add(f found, stage func(*state.Volume) bool) {
	pod := f.mount.Pod.UID
	v, fresh := a.record(f.id)
	if _, twice := v.Mounts[pod]; twice {
		a.refuse(f.path, "the pod also has the volume at %s: end the pod under the kubelet first",
			v.Mounts[pod].Target)
		return
	}
	if fresh {
		v.Spec = &f.spec
		v.SizeBytes = cmp.Or(f.want.HaveBytes, f.want.SizeBytes)
		if !stage(&v) {
			return
		}
	}
	v.Mounts = maps.Clone(v.Mounts)
	if v.Mounts == nil {
		v.Mounts = map[state.PodUID]state.Mount{}
	}
	v.Mounts[pod] = f.mount
	if v.Spec.Mode == state.Block && f.mount.Phase == state.Present && v.Stage.Phase == state.Entering {
		// A published device was also staged. For a file system that is not enough: if its mount were
		// gone, a second pod would get a directory of the node's own disk.
		v.Stage = state.Fact{Phase: state.Present}
	}
	v.For = slices.Sorted(maps.Keys(v.Mounts))
	a.out.Records[f.id] = v
	a.claimed[f.mount.Target] = true
	if a.fresh[pod] == nil {
		a.fresh[pod] = []string{}
	}
	a.addItem(Item{Path: f.path, Volume: f.id, Pod: pod, What: taken(f.mount)})
}

func taken(m state.Mount) string {
	switch {
	case m.Phase != state.Present:
		return takenUnsure
	case m.Seen.Mounted:
		return takenMounted
	default:
		return takenDir
	}
}

// mountOf returns the mount as the pod wants it, or what little is known if no listed pod does.
func (a *adoption) mountOf(pod state.PodUID, name, target string, want state.VolumeWant) state.Mount {
	m := state.Mount{MountSpec: state.MountSpec{
		Pod: state.Pod{UID: pod, Name: string(pod)}, Names: []string{name}, Target: target,
	}}
	if p, listed := a.Pods[pod]; listed {
		m.Pod = p.Pod
	}
	if want.ID != "" {
		m.MountSpec = want.Mount
		m.Names = want.Names
	}
	return m
}

// setPhase sets the phase of a kubelet's call, which is present if its effect is there.
func setPhase(there bool, m *state.Mount, seen state.Seen) {
	m.Phase = state.Entering
	if there {
		m.Phase, m.Seen = state.Present, seen
	}
}

// refuseUnlisted refuses pods that no source lists, because the daemon would unmount their volumes once
// all sources have spoken.
func (a *adoption) refuseUnlisted() {
	for _, pod := range slices.Sorted(maps.Keys(a.fresh)) {
		if _, listed := a.Pods[pod]; listed {
			continue
		}
		lost := ""
		if dirs := a.fresh[pod]; len(dirs) > 0 {
			lost = ", and the files of emptyDir " + strings.Join(dirs, ", ") + " be deleted"
		}
		a.out.Refusals = append(a.out.Refusals, Refusal{
			Path: path.Join(a.Layout.Pods(), string(pod)), Overrulable: true,
			Why: fmt.Sprintf("no source lists a pod with the uid %s, so its volumes would be unmounted when the daemon "+
				"starts%s: list it with this metadata.uid, or give a reason if it has ended", pod, lost),
		})
	}
}

// refuseStrays refuses mounts that no record explains: they would stay forever, or be hidden by
// another mount.
func (a *adoption) refuseStrays() {
	dirs := []string{a.Layout.Pods(), path.Join(a.Layout.Plugins(), "kubernetes.io")}
	for _, at := range a.Disk.Mounts {
		ofVolumes := slices.ContainsFunc(dirs, func(dir string) bool { return pathname.Within(at, dir) })
		refused := func(r Refusal) bool { return !r.Overrulable && pathname.Within(at, r.Path) }
		if !ofVolumes || a.explained(at) || slices.ContainsFunc(a.out.Refusals, refused) {
			continue
		}
		a.refuse(at, "the mount belongs to no known volume: unmount it first")
	}
}

// explained reports whether a mount belongs to a record or is below one that does.
func (a *adoption) explained(at string) bool {
	for dir := at; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if a.claimed[dir] {
			return true
		}
	}
	for _, records := range []map[state.VolumeID]state.Volume{a.out.Records, a.Journal} {
		for _, v := range records {
			if belongs(a.Layout, v, at) {
				return true
			}
		}
	}
	return false
}

// belongs reports whether a kubelet made this mount in addition to the volume's own: for a
// container's subPath, or for a device that it keeps open.
func belongs(l state.Layout, v state.Volume, at string) bool {
	for uid, m := range v.Mounts {
		for _, name := range append([]string{v.Spec.Name}, m.Names...) {
			if pathname.Within(at, path.Join(l.Pods(), string(uid), "volume-subpaths", name)) {
				return true
			}
		}
		if v.Spec.Mode == state.Block && at == MapPath(l, v.Spec.Name, uid) {
			return true
		}
	}
	return false
}

// MapPath is where a kubelet mounts a pod's block device a second time, to keep it open through a
// loop device.
func MapPath(l state.Layout, name string, pod state.PodUID) string {
	return path.Join(blockDir(l), name, "dev", string(pod))
}

func blockDir(l state.Layout) string {
	return path.Join(l.Plugins(), "kubernetes.io/csi/volumeDevices")
}

// groupOf returns the group that the driver itself gave to the volume's files, which is the first
// pod's.
func groupOf(m state.Mount, can Abilities) string {
	if !can.MountGroup || m.FSGroup == nil {
		return ""
	}
	return strconv.FormatInt(*m.FSGroup, 10)
}
