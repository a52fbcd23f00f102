package handover

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Managed is what is known about a node before its volumes are handed back.
type Managed struct {
	Layout state.Layout
	// NodeName is the node's name, which a kubelet's notes contain.
	NodeName string
	Journal  map[state.VolumeID]state.Volume
	// Lost says why the journal may lack its newest records; "" means that it has them.
	Lost string
	// Mounts lists all mounts below the root directory.
	Mounts []string
	// Devices holds the paths of local volumes that are block devices.
	Devices map[string]bool
}

// Handback is the result of Release: what to do, and what prevents it.
type Handback struct {
	// Files must exist before the records are deleted.
	Files []File `json:"-"`
	// Records must be deleted atomically.
	Records []state.VolumeID `json:"-"`
	// Empty lists directories that a kubelet does not use, to be removed afterwards.
	Empty []string `json:"-"`
	// Items describes the outcome for each volume, and Refusals lists the obstacles.
	Items    []Item    `json:"items,omitempty"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// File is a file that a kubelet looks for.
type File struct {
	Path string
	// Values is the content, as a JSON object; nil means an empty file.
	Values map[string]string
	// Dir is a directory that must exist as well; "" means none.
	Dir string
}

// Release returns the files by which a kubelet finds the volume of each record: its notes about CSI
// volumes, and the marker files of directories that it wraps files in. It also hands back calls
// that began and may not have completed, because a kubelet assumes that of everything that it
// finds.
func Release(in Managed) Handback {
	r := &release{Managed: in}
	if in.Lost != "" { // a kubelet would not detach, unstage or unpublish what they described
		r.out.Refusals = append(r.out.Refusals, Refusal{
			Path: "the journal",
			Why: fmt.Sprintf("it may have lost its newest records (%s): start the daemon, see csi-volmgr get problems, and "+
				"accept the loss (csi-volmgr journal accept)", in.Lost),
		})
	}
	for _, id := range slices.Sorted(maps.Keys(in.Journal)) {
		v := in.Journal[id]
		if why := r.obstacle(v); why != "" {
			r.out.Refusals = append(r.out.Refusals, Refusal{Path: "volume " + string(id), Why: why})
			continue
		}
		r.releaseVolume(v)
		r.out.Records = append(r.out.Records, id)
	}
	slices.SortFunc(r.out.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortStableFunc(r.out.Items, func(a, b Item) int { return cmp.Compare(a.Path, b.Path) })
	return r.out
}

// release is the state of one call of Release.
type release struct {
	Managed
	out Handback
}

// obstacle returns why a kubelet could not continue with the volume, or "".
func (r *release) obstacle(v state.Volume) string {
	if v.Attach.Phase != state.Absent {
		return "csi-volmgr attached it, and a kubelet would not detach it: start the daemon and end its pods"
	}
	leaving := v.Stage.Phase == state.Leaving
	for _, m := range v.Mounts {
		leaving = leaving || m.Phase == state.Leaving
	}
	if leaving {
		return "it is being removed: start the daemon and wait until it is gone"
	}
	if v.Spec.Builtin {
		if why := r.obstacleOfKind(*v.Spec); why != "" {
			return why
		}
	}
	for uid, m := range v.Mounts {
		if v.Spec.Mode == state.Block && m.Phase == state.Entering {
			return fmt.Sprintf("its device may already be published to pod %s, which a kubelet would not notice: start the "+
				"daemon and wait until it is", uid)
		}
		for _, name := range m.Names {
			dir := path.Join(r.Layout.Pods(), string(uid), "volume-subpaths", name)
			if name != v.Spec.Name && slices.ContainsFunc(r.Mounts, func(at string) bool { return pathname.Within(at, dir) }) {
				return fmt.Sprintf("subPaths of it are mounted below %s, but a kubelet looks for them under the name "+
					"%s: end the pod first", dir, v.Spec.Name)
			}
		}
	}
	return ""
}

// obstacleOfKind is obstacle for a built-in kind.
func (r *release) obstacleOfKind(s state.Spec) string {
	const end = ": start the daemon and end its pods"
	if k, _ := kind.Of(s.Driver); !k.Kept || s.StagePath != "" {
		return fmt.Sprintf("a kubelet keeps kind %s in another form", s.Driver) + end
	}
	if s.Driver != kind.Local {
		return ""
	}
	var source struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(s.Config, &source); err != nil {
		return "its source cannot be read: " + err.Error() + end
	}
	if s.Mode == state.Block {
		return "a kubelet keeps raw block volumes of this kind in another form" + end
	}
	if r.Devices[source.Path] {
		return fmt.Sprintf("it is of the device %s, which a kubelet mounts a second time at %s and csi-volmgr does not",
			source.Path, localDevice(r.Layout, s.Name)) + end
	}
	return ""
}

const givenBack = "handed back as it is"

// releaseVolume hands back one volume.
func (r *release) releaseVolume(v state.Volume) {
	if !v.Spec.Builtin && !v.Spec.Ephemeral && v.Spec.StagePath != "" {
		r.releaseShared(v)
	}
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		m := v.Mounts[uid]
		r.out.Items = append(r.out.Items, Item{Path: m.Target, Volume: v.ID, Pod: uid, What: givenBack})
		switch {
		case v.Spec.Driver == kind.HostPath:
			r.out.Empty = append(r.out.Empty, m.Target)
		case v.Spec.Builtin:
			if k, _ := kind.Of(v.Spec.Driver); k.Wrapped {
				r.addFile(File{Path: path.Join(r.Layout.Pods(), string(uid), "plugins/kubernetes.io~empty-dir",
					"wrapped_"+v.Spec.Name, "ready")})
			}
		case v.Spec.Mode != state.Block:
			notes := r.notes(*v.Spec)
			notes[keyName] = path.Base(path.Dir(m.Target))
			notes[keyLifecycle] = persistent
			if v.Spec.Ephemeral {
				notes[keyLifecycle] = ephemeral
			}
			r.addFile(File{Path: path.Join(path.Dir(m.Target), NotesName), Values: notes})
		}
	}
}

// releaseShared hands back what all pods of a volume share.
func (r *release) releaseShared(v state.Volume) {
	if v.Stage.Phase != state.Absent {
		r.out.Items = append(r.out.Items, Item{Path: v.Spec.StagePath, Volume: v.ID, What: givenBack})
	}
	if v.Spec.Mode == state.Block {
		notes := r.notes(*v.Spec)
		notes[keyName] = v.Spec.Name
		f := File{Path: path.Join(blockDir(r.Layout), v.Spec.Name, "data", NotesName), Values: notes}
		if v.Stage.Phase != state.Absent {
			f.Dir = v.Spec.StagePath // only this tells a kubelet and adopt that a driver may have staged a device
		}
		r.addFile(f)
		return
	}
	notes := map[string]string{keyDriver: string(v.Spec.Driver), keyHandle: v.Spec.Handle}
	if v.Spec.SELinuxLabel != "" {
		notes[keyLabel] = v.Spec.SELinuxLabel
	}
	// A kubelet has the directory for volumes that are not staged, too.
	r.addFile(File{Path: path.Join(path.Dir(v.Spec.StagePath), NotesName), Values: notes, Dir: v.Spec.StagePath})
}

func (r *release) addFile(f File) { r.out.Files = append(r.out.Files, f) }

// notes returns the notes that every use of a volume has. They name an attachment even if there is
// none.
func (r *release) notes(s state.Spec) map[string]string {
	sum := sha256.Sum256([]byte(s.Handle + string(s.Driver) + r.NodeName))
	n := map[string]string{
		keyDriver: string(s.Driver), keyHandle: s.Handle, keyNode: r.NodeName,
		keyAttachment: "csi-" + hex.EncodeToString(sum[:]),
	}
	if s.SELinuxLabel != "" && s.Mode != state.Block {
		n[keyLabel] = s.SELinuxLabel
	}
	return n
}
