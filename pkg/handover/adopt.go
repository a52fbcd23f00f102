package handover

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Abilities is what a driver that answers can do.
type Abilities struct {
	// Stage is STAGE_UNSTAGE_VOLUME, MountGroup is VOLUME_MOUNT_GROUP.
	Stage, MountGroup bool
}

// Input is what is known when a node's volumes are to be taken over.
type Input struct {
	Layout state.Layout
	Disk   Disk
	// Pods are all that the sources list.
	Pods map[state.PodUID]state.PodWant
	// Journal are the records that there are already.
	Journal map[state.VolumeID]state.Volume
	// Drivers are those that answered.
	Drivers map[state.DriverName]Abilities
}

// Takeover is what taking over would do, and what stands against it.
type Takeover struct {
	// Records are to be committed at once, all or none.
	Records map[state.VolumeID]state.Volume `json:"-"`
	// Items say what becomes of each thing, by path.
	Items []Item `json:"items,omitempty"`
	// Refusals say what stands against it; with any that no reason overrules
	// nothing is taken over.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Empty are directories that stand for nothing once the records are there: a
	// kubelet makes one for each volume, also of drivers that stage none.
	Empty []string `json:"-"`
}

// Item is one thing on the disk.
type Item struct {
	Path   string         `json:"path"`
	Volume state.VolumeID `json:"volume,omitempty"`
	Pod    state.PodUID   `json:"pod,omitempty"`
	What   string         `json:"what"`
}

// Refusal is a reason not to take over.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Overruled by a person's reason: what is lost is a pod's, and not known here
	// to be wanted.
	Overrulable bool `json:"overrulable,omitempty"`
}

// Against joins the refusals that a reason, or none, does not overrule; "" for none.
func Against(refusals []Refusal, reason string) string {
	var all []string
	for _, r := range refusals {
		if !r.Overrulable || reason == "" {
			all = append(all, r.Path+": "+r.Why)
		}
	}
	return strings.Join(all, "; ")
}

// What is said about what is taken over.
const (
	takenMounted = "taken over as it is mounted"
	takenDir     = "taken over as it is"
	takenUnsure  = "taken over as begun and not known to be done: the daemon repeats the call if the volume is wanted, " +
		"and undoes it if not"
	leftNothing = "left: nothing is mounted there, and nothing says what it was for"
	leftNoStage = "removed if it is empty: the driver stages nothing"
)

// Adopt returns the records of what a kubelet left on the node. Present is what
// the kernel shows; what a kubelet began and the kernel does not show becomes
// entering. What the journal has already is left alone, so a second time nothing
// is to be done.
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
	a.known()
	for _, v := range in.Disk.Volumes {
		a.volume(v)
	}
	for _, b := range in.Disk.Blocks {
		a.block(b)
	}
	for _, d := range in.Disk.Devices {
		a.device(d)
	}
	for _, s := range in.Disk.Staged {
		a.stageAlone(s)
	}
	a.unlisted()
	a.refuseStrays()
	slices.SortStableFunc(a.out.Items, func(p, q Item) int { return cmp.Compare(p.Path, q.Path) })
	slices.SortStableFunc(a.out.Refusals, func(p, q Refusal) int { return cmp.Compare(p.Path, q.Path) })
	return a.out
}

// adoption is one Adopt.
type adoption struct {
	Input
	out Takeover
	// at are the wishes by target, by those by volume.
	at map[string]state.VolumeWant
	by map[state.VolumeID]state.VolumeWant
	// claimed are the paths that a record answers for.
	claimed map[string]bool
	// fresh are the pods with a volume that is taken over now, and those of their
	// emptyDirs that hold something.
	fresh map[state.PodUID][]string
}

func (a *adoption) refuse(path, format string, args ...any) {
	a.out.Refusals = append(a.out.Refusals, Refusal{Path: path, Why: fmt.Sprintf(format, args...)})
}

func (a *adoption) addItem(i Item) { a.out.Items = append(a.out.Items, i) }

// known claims what the journal's records answer for.
func (a *adoption) known() {
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

// record returns the record as it is now; fresh where there was none.
func (a *adoption) record(id state.VolumeID) (v state.Volume, fresh bool) {
	if v, ok := a.out.Records[id]; ok {
		return v, false
	}
	if v, ok := a.Journal[id]; ok && !v.Clear() {
		return v, false
	}
	return state.Volume{ID: id}, true
}

// found is a pod's volume, with all that a record needs.
type found struct {
	id    state.VolumeID
	spec  state.Spec
	mount state.Mount
	want  state.VolumeWant // zero where no pod wants it
	path  string           // for people
}

// add takes a pod's volume into its record. stage says how it is staged; it is
// asked only where the record is new.
func (a *adoption) add(f found, stage func(*state.Volume) bool) {
	pod := f.mount.Pod.UID
	v, fresh := a.record(f.id)
	if _, twice := v.Mounts[pod]; twice {
		a.refuse(f.path, "the pod has the volume a second time, at %s: end the pod under the kubelet first",
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
		// It is published, so it was staged. Of a file system that is not enough: with
		// its mount gone a second pod would be given a directory of the node's own disk.
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

// mountOf is the mount as the pod wants it, or as little as is known of it.
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

// phase is what a kubelet's call came to, by whether its effect is seen.
func phase(there bool, m *state.Mount, seen state.Seen) {
	m.Phase = state.Entering
	if there {
		m.Phase, m.Seen = state.Present, seen
	}
}

// unlisted refuses pods that no source lists here: their volumes would go as soon as
// the daemon has heard every source.
func (a *adoption) unlisted() {
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
				"starts%s: list it, with this metadata.uid, or say with a reason that it has ended", pod, lost),
		})
	}
}

// refuseStrays refuses mounts that no record answers for: they would stay for ever, or
// be mounted over.
func (a *adoption) refuseStrays() {
	dirs := []string{a.Layout.Pods(), path.Join(a.Layout.Plugins(), "kubernetes.io")}
	for _, at := range a.Disk.Mounts {
		ofVolumes := slices.ContainsFunc(dirs, func(dir string) bool { return pathname.Within(at, dir) })
		refused := func(r Refusal) bool { return !r.Overrulable && pathname.Within(at, r.Path) }
		if !ofVolumes || a.answered(at) || slices.ContainsFunc(a.out.Refusals, refused) {
			continue
		}
		a.refuse(at, "something is mounted there that is no part of a volume that is known: unmount it first")
	}
}

// answered reports whether a mount is a record's, or below one.
func (a *adoption) answered(at string) bool {
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

// belongs reports whether a mount is one that a kubelet makes beside a volume's
// own: of a part of it for a container, or of a device that it keeps open.
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

// MapPath is where a kubelet mounts a pod's block device once more, to keep it
// open by a loop device meanwhile.
func MapPath(l state.Layout, name string, pod state.PodUID) string {
	return path.Join(blockDir(l), name, "dev", string(pod))
}

func blockDir(l state.Layout) string {
	return path.Join(l.Plugins(), "kubernetes.io/csi/volumeDevices")
}

// groupOf is the group that the driver itself gave the volume's files, which is
// that of the first pod.
func groupOf(m state.Mount, can Abilities) string {
	if !can.MountGroup || m.FSGroup == nil {
		return ""
	}
	return strconv.FormatInt(*m.FSGroup, 10)
}
