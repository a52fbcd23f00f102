package sim

import (
	"path"

	"github.com/csi-volmgr/csi-volmgr/pkg/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// kubeletKeeps reports whether a kubelet keeps a volume as it is kept here.
func kubeletKeeps(name string) bool {
	kind := volumes[name].driver
	return kind == emptyDir || !drivers[kind].Builtin
}

// hand is a kubelet that makes or unmakes what one pod is to have, and that dies
// after some steps.
type hand struct {
	w    *world
	uid  string
	left int
}

// syncs lets the kubelet do up to so many steps for a pod; mu is held.
func (w *world) syncs(uid string, steps int) {
	if !w.kubelet {
		return
	}
	k := &hand{w, uid, steps}
	p, listed := w.wishes[uid]
	for _, name := range sortedKeys(volumes) {
		id, _ := w.specOf(uid, name)
		if !kubeletKeeps(name) || w.late[id] > 0 || w.frozen[name] || w.down[volumes[name].driver] {
			continue
		}
		ws, wants := p.vols[name]
		switch {
		case !listed || p.stopped || !wants && !w.judge.running[uid][target(uid, name)]:
			k.unmake(name)
		case wants && !ws.problem && !w.objects[name].hold:
			k.make(name)
		}
	}
	if !listed || p.stopped || k.left == 0 {
		return
	}
	has := map[string]bool{}
	for name := range p.vols {
		if _, ok := w.table[target(uid, name)]; !ok {
			return
		}
		has[target(uid, name)] = true
	}
	w.judge.running[uid] = has
}

// step counts one, and reports whether the kubelet lives to do it.
func (k *hand) step() bool {
	if k.left == 0 {
		return false
	}
	k.left--
	k.w.count.calls["of a kubelet"]++
	return true
}

// make stages and publishes. A kubelet's notes come first, and it has a staging
// directory also of volumes that are not staged.
func (k *hand) make(name string) {
	w := k.w
	id, spec := w.specOf(k.uid, name)
	ls := w.judge.of(id)
	if volumes[name].exclusive {
		for other, ln := range ls.publish {
			if string(other) != k.uid && ln.making {
				return
			}
		}
	}
	notes := map[string]string{"driverName": string(spec.Driver), "volumeHandle": spec.Handle}
	if spec.StagePath != "" {
		k.note(path.Dir(spec.StagePath), notes)
		if w.info(spec.Driver).Stage && !k.put(spec.StagePath, id, &ls.stage) {
			return
		}
	}
	to := target(k.uid, name)
	if !spec.Builtin {
		lifecycle := "Persistent"
		if spec.Ephemeral {
			lifecycle = "Ephemeral"
		}
		k.note(path.Dir(to), map[string]string{"driverName": notes["driverName"], "volumeHandle": spec.Handle, "specVolID": name, "volumeLifecycleMode": lifecycle})
	}
	k.put(to, id, ls.lane(op{pod: state.PodUID(k.uid)}))
}

// note writes notes, which a death cuts off.
func (k *hand) note(dir string, values map[string]string) {
	file := path.Join(dir, handover.NotesName)
	if k.w.notes[file].Values != nil || !k.step() {
		return
	}
	k.w.notes[file] = handover.Notes{Found: true, Values: values}
	if k.left == 0 && k.w.dice("torn", file)%2 == 0 {
		k.w.notes[file] = handover.Notes{Found: true, Problem: "unexpected end of JSON input"}
	}
}

// put makes what is to be at a path, and reports whether it is there.
func (k *hand) put(at string, id state.VolumeID, ln *lane) bool {
	if _, ok := k.w.table[at]; ok {
		ln.ok = true
		return true
	}
	if !k.step() {
		return false
	}
	k.w.change(at, &mount{dir: !drivers[volumes[places[at].name].driver].MountsTarget, dev: k.w.devOf(id), layers: 1})
	*ln = lane{making: true, ok: true}
	return true
}

// unmake takes away what the pod has, and what is staged after the last pod.
func (k *hand) unmake(name string) {
	w := k.w
	id, spec := w.specOf(k.uid, name)
	ls := w.judge.of(id)
	to := target(k.uid, name)
	k.take(to, ls.lane(op{pod: state.PodUID(k.uid)}))
	if spec.StagePath == "" {
		return
	}
	for _, uid := range pods {
		_, wants := w.wishes[uid].vols[name]
		if _, has := w.notes[path.Join(path.Dir(target(uid, name)), handover.NotesName)]; has || wants {
			return
		}
	}
	k.take(spec.StagePath, &ls.stage)
}

func (k *hand) take(at string, ln *lane) {
	file := path.Join(path.Dir(at), handover.NotesName)
	if _, there := k.w.table[at]; there || ln.making {
		if !k.step() {
			return
		}
		k.w.change(at, nil)
		*ln = lane{removed: true}
	}
	if _, ok := k.w.notes[file]; ok && k.step() {
		delete(k.w.notes, file)
	}
}

// found is what is below the root, as handover/disk reads it.
func (w *world) found() handover.Disk {
	var d handover.Disk
	for _, at := range sortedKeys(places) {
		of, seen := places[at], w.seen(at)
		dir := path.Dir(at)
		notes := w.notes[path.Join(dir, handover.NotesName)]
		builtin := drivers[volumes[of.name].driver].Builtin
		switch {
		case !seen.Exists && !notes.Found:
		case of.uid == "" && builtin:
		case of.uid == "":
			seen.Exists = true
			d.Staged = append(d.Staged, handover.Staged{Path: at, Notes: notes, Seen: seen})
		case builtin:
			plugin := path.Base(dir)
			d.Volumes = append(d.Volumes, handover.Volume{Pod: state.PodUID(of.uid), Plugin: plugin, Name: of.name, Path: at, Seen: seen, Files: plugin == "kubernetes.io~empty-dir"})
		default:
			d.Volumes = append(d.Volumes, handover.Volume{Pod: state.PodUID(of.uid), Plugin: "kubernetes.io~csi", Name: of.name, Path: dir, Notes: notes, Seen: seen})
		}
		if seen.Mounted {
			d.Mounts = append(d.Mounts, at)
		}
	}
	return d
}

// forget removes the notes of what is at a path, as whoever unmounts it does.
func (w *world) forget(at string) {
	if !drivers[volumes[places[at].name].driver].Builtin {
		delete(w.notes, path.Join(path.Dir(at), handover.NotesName))
	}
}
