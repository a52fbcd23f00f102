package sim

// former reports whether o unpublishes a target once more, for a driver that counts: before the first
// Publish after a reboot, or because Unstage was refused. Such a call has no more of the mount than its target.
func former(o op) bool {
	target, is := o.v.Former[o.pod]
	m := o.v.Mounts[o.pod]
	return o.verb == "Unpublish" && is && m.Target == target && m.Pod.Name == "" && len(m.Names) == 0
}

// unpublishesAgain judges such a call: nothing that a container uses is at the target.
func (j *judge) unpublishesAgain(o op) {
	to := o.v.Former[o.pod]
	if _, mounted := j.w.table[to]; mounted && j.running[string(o.pod)][to] {
		j.w.breach("rule 5: %v again, and the pod is running", o)
	}
	for id, r := range j.w.disk.records {
		if m := r.Mounts[o.pod]; id != o.v.ID && m.Target == to && m.HostPath == "" {
			j.w.breach("%v again, and volume %s has its target", o, id)
		}
	}
}
