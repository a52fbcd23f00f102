package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// texts are the facts that are sentences for people. A scenario gives a part of the sentence.
var texts = []string{"held", "blocked", "error", "problem"}

// expect THING [NAME] FACT=VALUE...: each fact has the value; a sentence contains it.
func (p *player) expect(args []string) {
	synctest.Wait()
	if len(args) == 0 {
		p.fatalf("want expect THING [NAME] FACT=VALUE")
	}
	thing, args := args[0], args[1:]
	switch thing {
	case "clean":
		if n := len(p.d.records(p.t)); !p.h.clean() || n != 0 || len(p.l.Volumes()) != 0 {
			p.fatalf("left: published %s, staged %s, %d records", text(p.h.published), text(p.h.staged), n)
		}
		return
	case "in-use":
		var want []state.VolumeID
		for _, v := range list(args) {
			want = append(want, state.VolumeID("d^"+v[0]))
		}
		if got := p.l.GetVolumesInUse(); !slices.Equal(got, want) {
			p.fatalf("in use: %v", got)
		}
		return
	}
	name := ""
	if len(args) > 0 && !strings.Contains(args[0], "=") {
		name, args = args[0], args[1:]
	}
	if len(args) == 0 {
		p.fatalf("want expect %s [NAME] FACT=VALUE", thing)
	}
	facts := p.facts(thing, name)
	for _, fact := range args {
		key, want, _ := strings.Cut(fact, "=")
		got, ok := facts[key]
		if good := got == want || slices.Contains(texts, key) && want != "" && strings.Contains(got, want); !ok || !good {
			p.fatalf("%s is %q; all: %v", key, got, facts)
		}
	}
}

// facts returns the facts about a thing, in words.
func (p *player) facts(thing, name string) map[string]string {
	switch thing {
	case "node":
		p.h.mu.Lock()
		defer p.h.mu.Unlock()
		return map[string]string{"synced": fmt.Sprint(p.l.ReconcilerStatesHasBeenSynced()), "at-once": fmt.Sprint(p.most)}
	case "pod":
		s, ok := p.l.Pod(state.PodUID(name))
		return map[string]string{"known": fmt.Sprint(ok), "ready": fmt.Sprint(s.Ready)}
	case "mount": // POD/VOLUME
		pod, volume, _ := strings.Cut(name, "/")
		s, _ := p.l.Pod(state.PodUID(pod))
		i := slices.IndexFunc(s.Volumes, func(v PodVolumeStatus) bool { return slices.Contains(v.Names, volume) })
		if i < 0 {
			p.fatalf("pod %s has no volume %s: %+v", pod, volume, s)
		}
		v := s.Volumes[i]
		m := p.l.GetMountedVolumesForPod(state.PodUID(pod))[volume]
		return map[string]string{
			"mounted": fmt.Sprint(v.Mounted), "phase": v.Phase.String(), "step": v.Step.String(), "blocked": v.BlockedBy,
			"attempts": fmt.Sprint(v.Retry.Attempts), "call": v.Retry.Call, "code": v.Retry.Code, "error": v.Retry.Error, "readonly": fmt.Sprint(m.ReadOnly),
			"unresolved": fmt.Sprint(v.Unresolved()), "id": short(string(v.ID)), "path": v.HostPath,
		}
	case "driver":
		for _, d := range p.l.Drivers() {
			if string(d.Name) == name {
				return map[string]string{"up": fmt.Sprint(d.Up), "generation": fmt.Sprint(d.Generation), "volumes": fmt.Sprint(d.Volumes), "problem": d.Problem}
			}
		}
	case "volume":
		v, ok := p.l.Volume(state.VolumeID("d^" + name))
		facts := recordFacts(v.Volume, ok)
		size, _ := p.grown.Load(v.Volume.ID)
		facts["reported"] = fmt.Sprint(size)
		facts["held"], facts["step"], facts["operator"] = v.Held.Reason, v.Held.Step.String(), fmt.Sprint(v.Held.Operator)
		return facts
	case "record":
		v, ok := p.d.records(p.t)[state.VolumeID("d^"+name)]
		return recordFacts(v, ok)
	case "verify": // POD: whether a container may start
		return map[string]string{"ok": fmt.Sprint(p.l.Verify(p.t.Context(), state.PodUID(name)) == nil)}
	}
	p.fatalf("%s %s is not known", thing, name)
	return nil
}

// recordFacts returns the facts of a record. Those of a pod's mount begin with the pod's name.
func recordFacts(v state.Volume, ok bool) map[string]string {
	r := v.Stage.Retry()
	facts := map[string]string{
		"known": fmt.Sprint(ok), "stage": v.Stage.Phase.String(), "size": fmt.Sprint(v.SizeBytes),
		"attempts": fmt.Sprint(r.Attempts), "code": r.Code, "error": r.Error,
	}
	for pod, m := range v.Mounts {
		facts[string(pod)], facts[string(pod)+".revision"], facts[string(pod)+".attempts"] = m.Phase.String(), m.Revision, fmt.Sprint(m.Retry().Attempts)
	}
	return facts
}
