package sim

import (
	"path"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// kubeletKeeps reports whether a kubelet stores a volume in the same way as the daemon.
func kubeletKeeps(name string) bool {
	kind := volumes[name].driver
	return kind == emptyDir || !drivers[kind].Builtin
}

// hand is a kubelet that makes or removes the volumes of one pod, and dies after some steps.
type hand struct {
	w    *world
	uid  string
	left int
}

// syncs lets the kubelet do up to the given number of steps for a pod; mu is held.
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

// step counts a step, and reports whether the kubelet lives to do it.
func (k *hand) step() bool {
	if k.left == 0 {
		return false
	}
	k.left--
	k.w.count.calls["of a kubelet"]++
	return true
}

// make stages and publishes. A kubelet writes its notes first, and makes a staging directory even
// for volumes that are not staged.
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
		k.note(notesOf(spec.StagePath), notes)
		if w.info(spec.Driver).Stage && !k.put(spec.StagePath, id, &ls.stage) {
			return
		}
	}
	to := target(k.uid, name)
	if !spec.Builtin && spec.Mode != state.Block {
		lifecycle := "Persistent"
		if spec.Ephemeral {
			lifecycle = "Ephemeral"
		}
		k.note(notesOf(to), map[string]string{"driverName": notes["driverName"], "volumeHandle": spec.Handle, "specVolID": name, "volumeLifecycleMode": lifecycle})
	}
	k.put(to, id, ls.lane(op{pod: state.PodUID(k.uid)}))
}

// note writes notes; the kubelet's death can cut the write off.
func (k *hand) note(file string, values map[string]string) {
	if k.w.notes[file].Values != nil || !k.step() {
		return
	}
	k.w.notes[file] = handover.Notes{Found: true, Values: values}
	if k.left == 0 && k.w.dice("torn", file)%2 == 0 {
		k.w.notes[file] = handover.Notes{Found: true, Problem: "unexpected end of JSON input"}
	}
}

// put makes the mount at a path, and reports whether it exists.
func (k *hand) put(at string, id state.VolumeID, ln *lane) bool {
	if _, ok := k.w.table[at]; ok {
		ln.ok = true
		return true
	}
	if !k.step() {
		return false
	}
	k.w.change(at, made(at, k.w.devOf(id), 1))
	*ln = lane{making: true, ok: true}
	return true
}

// unmake removes the pod's mount, and after the last pod the stage.
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
		_, has := w.notes[notesOf(target(uid, name))]
		if volumes[name].block {
			has = ls.lane(op{pod: state.PodUID(uid)}).making
		}
		if has || wants {
			return
		}
	}
	k.take(spec.StagePath, &ls.stage)
}

func (k *hand) take(at string, ln *lane) {
	file := notesOf(at)
	if _, there := k.w.table[at]; there || ln.making {
		if !k.step() {
			return
		}
		k.w.change(at, nil)
		*ln = lane{removed: true}
	}
	if of := places[at]; volumes[of.name].block && of.uid != "" {
		return // they are also the notes of its stage
	}
	if _, ok := k.w.notes[file]; ok && k.step() {
		delete(k.w.notes, file)
	}
}

// found returns the state below the root, as handover/disk reads it.
func (w *world) found() handover.Disk {
	var d handover.Disk
	for _, at := range sortedKeys(places) {
		of, seen := places[at], w.seen(at)
		dir := path.Dir(at)
		notes := w.notes[notesOf(at)]
		builtin := drivers[volumes[of.name].driver].Builtin
		switch {
		case !seen.Exists && !notes.Found:
		case volumes[of.name].block:
			if of.uid == "" {
				d.Blocks = append(d.Blocks, w.device(of.name, notes))
			}
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

// device returns the state of a volume that pods have as a device.
func (w *world) device(name string, notes handover.Notes) handover.Block {
	b := handover.Block{Name: name, Notes: notes, Stage: w.seen(stagePath(name)), Published: map[state.PodUID]state.Seen{}}
	for _, uid := range pods {
		if seen := w.seen(target(uid, name)); seen.Exists {
			b.Published[state.PodUID(uid)] = seen
		}
	}
	return b
}

// forget removes the notes of a path, as every unmount does; those of a device only once no other
// path has the device.
func (w *world) forget(at string) {
	of := places[at]
	if drivers[volumes[of.name].driver].Builtin {
		return
	}
	if volumes[of.name].block {
		for other, o := range places {
			if _, there := w.table[other]; there && o.name == of.name && other != at {
				return
			}
		}
	}
	delete(w.notes, notesOf(at))
}
