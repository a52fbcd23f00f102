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

	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Managed is what is known when a node's volumes are to be handed back.
type Managed struct {
	Layout state.Layout
	// NodeName is that of the node, which a kubelet's notes have.
	NodeName string
	Journal  map[state.VolumeID]state.Volume
	// Mounts are all mounts below the root directory.
	Mounts []string
	// Devices are the paths of local volumes that are block devices.
	Devices map[string]bool
}

// Handback is what handing back would do, and what stands against it.
type Handback struct {
	// Files are to be there before the records are deleted.
	Files []File `json:"-"`
	// Records are to be deleted at once, all or none.
	Records []state.VolumeID `json:"-"`
	// Empty are directories that a kubelet has none of, to be removed after.
	Empty []string `json:"-"`
	// Items say what becomes of each volume, and Refusals what stands against it.
	Items    []Item    `json:"items,omitempty"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// File is one that a kubelet looks for.
type File struct {
	Path string
	// Values are what it holds, as a JSON object; nil for an empty file.
	Values map[string]string
	// Dir is a directory that is to be beside it; "" for none.
	Dir string
}

// Release returns the files by which a kubelet finds what there is of each
// record: its notes of CSI volumes, and the marks of directories that it wraps
// files in. What was begun and is not known to be done is handed back as well:
// of all that it finds a kubelet assumes no more.
func Release(in Managed) Handback {
	r := &release{Managed: in}
	for _, id := range slices.Sorted(maps.Keys(in.Journal)) {
		v := in.Journal[id]
		if why := r.obstacle(v); why != "" {
			r.out.Refusals = append(r.out.Refusals, Refusal{Path: "volume " + string(id), Why: why})
			continue
		}
		r.volume(v)
		r.out.Records = append(r.out.Records, id)
	}
	slices.SortFunc(r.out.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortStableFunc(r.out.Items, func(a, b Item) int { return cmp.Compare(a.Path, b.Path) })
	return r.out
}

// release is one Release.
type release struct {
	Managed
	out Handback
}

// obstacle says why a kubelet could not go on with the volume; "" if it can.
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
			return fmt.Sprintf("its device may be published to pod %s already, and a kubelet would not know: start the daemon "+
				"and wait until it is", uid)
		}
		for _, name := range m.Names {
			dir := path.Join(r.Layout.Pods(), string(uid), "volume-subpaths", name)
			if name != v.Spec.Name && slices.ContainsFunc(r.Mounts, func(at string) bool { return pathname.Within(at, dir) }) {
				return fmt.Sprintf("parts of it are mounted below %s for containers, and a kubelet looks for them by the name "+
					"%s: end the pod first", dir, v.Spec.Name)
			}
		}
	}
	return ""
}

// obstacleOfKind is obstacle for a kind that is served in this process.
func (r *release) obstacleOfKind(s state.Spec) string {
	const end = ": start the daemon and end its pods"
	if k, _ := kind.Of(s.Driver); !k.Kept || s.StagePath != "" {
		return fmt.Sprintf("kind %s is kept otherwise by a kubelet", s.Driver) + end
	}
	if s.Driver != kind.Local {
		return ""
	}
	var source struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(s.Config, &source); err != nil {
		return "it is not known what it is of: " + err.Error() + end
	}
	if s.Mode == state.Block {
		return "raw block volumes of the kind are kept otherwise by a kubelet" + end
	}
	if r.Devices[source.Path] {
		return fmt.Sprintf("it is of the device %s, which a kubelet mounts a second time at %s and csi-volmgr does not",
			source.Path, localDevice(r.Layout, s.Name)) + end
	}
	return ""
}

const givenBack = "handed back as it is"

// volume hands back what there is of one volume.
func (r *release) volume(v state.Volume) {
	if !v.Spec.Builtin && !v.Spec.Ephemeral && v.Spec.StagePath != "" {
		r.shared(v)
	}
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		m := v.Mounts[uid]
		r.out.Items = append(r.out.Items, Item{Path: m.Target, Volume: v.ID, Pod: uid, What: givenBack})
		switch {
		case v.Spec.Driver == kind.HostPath:
			r.out.Empty = append(r.out.Empty, m.Target)
		case v.Spec.Builtin:
			if k, _ := kind.Of(v.Spec.Driver); k.Wrapped {
				r.file(File{Path: path.Join(r.Layout.Pods(), string(uid), "plugins/kubernetes.io~empty-dir", "wrapped_"+v.Spec.Name,
					"ready")})
			}
		case v.Spec.Mode != state.Block:
			notes := r.notes(*v.Spec)
			notes[keyName] = path.Base(path.Dir(m.Target))
			notes[keyLifecycle] = persistent
			if v.Spec.Ephemeral {
				notes[keyLifecycle] = ephemeral
			}
			r.file(File{Path: path.Join(path.Dir(m.Target), NotesName), Values: notes})
		}
	}
}

// shared hands back what a volume has for all pods.
func (r *release) shared(v state.Volume) {
	if v.Stage.Phase != state.Absent {
		r.out.Items = append(r.out.Items, Item{Path: v.Spec.StagePath, Volume: v.ID, What: givenBack})
	}
	if v.Spec.Mode == state.Block {
		notes := r.notes(*v.Spec)
		notes[keyName] = v.Spec.Name
		f := File{Path: path.Join(blockDir(r.Layout), v.Spec.Name, "data", NotesName), Values: notes}
		if v.Stage.Phase != state.Absent {
			f.Dir = v.Spec.StagePath // by which alone a kubelet and adopt know that a driver may have staged a device
		}
		r.file(f)
		return
	}
	notes := map[string]string{keyDriver: string(v.Spec.Driver), keyHandle: v.Spec.Handle}
	if v.Spec.SELinuxLabel != "" {
		notes[keyLabel] = v.Spec.SELinuxLabel
	}
	// A kubelet has the directory also of volumes that are not staged.
	r.file(File{Path: path.Join(path.Dir(v.Spec.StagePath), NotesName), Values: notes, Dir: v.Spec.StagePath})
}

func (r *release) file(f File) { r.out.Files = append(r.out.Files, f) }

// notes are those that every use of a volume has. The attachment is named even
// where there is none.
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
