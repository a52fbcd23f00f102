package sim

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bug is a mistake to plant in the product, which the simulation must find: in a file, new replaces
// the first occurrence of old.
type bug struct {
	name, file, old, new string
}

// bugs are mistakes of every kind that the design prevents.
var bugs = []bug{
	{
		"an intent is not written before its call", "pkg/manager/journal.go",
		"if s.intent != nil {\n\t\t\tb[s.id] = s.intent", "if s.intent != nil && s.op.Kind != plan.Stage {\n\t\t\tb[s.id] = s.intent",
	},
	{
		"a call's answer is not checked with the kernel", "pkg/manager/call.go",
		"err = c.verify(ctx, v, op, &r)\n", "if false {\n\t\t\terr = c.verify(ctx, v, op, &r)\n\t\t}\n",
	},
	{
		"the loop does not wait for a source that is silent", "pkg/manager/decide.go",
		"Synced: len(l.gates.unsynced) == 0", "Synced: true",
	},
	{
		"an error proves a mount absent", "pkg/manager/plan/apply.go",
		"m.Failed = next(m.Failed)", "if m.Failed = next(m.Failed); op.Kind == Publish && err.Outcome == state.Failed { m.Phase = state.Absent }",
	},
	{
		"the journal has another mount than its call makes", "pkg/manager/plan/apply.go",
		"return d.Phase == b.Phase && d.MountSpec.Equal(b.MountSpec)", "return d.Phase == b.Phase",
	},
	{
		"a stage that vanished is not looked at", "pkg/manager/verify.go",
		"r.Stage.Phase == state.Present && differs(r.Spec.StagePath, r.Staged)", "false",
	},
	{
		"a failed removal is turned back from", "pkg/manager/plan/next.go",
		"case m.Phase == state.Leaving:\n\t\t\tc.propose(op, m.Failed)", "case m.Phase == state.Leaving && !wanted:\n\t\t\tc.propose(op, m.Failed)",
	},
	{
		"unstage while a mount is uncertain", "pkg/state/volume.go",
		"if m.Phase != Absent {\n\t\t\treturn false\n\t\t}\n\t}\n\treturn true", "if m.Phase == Present {\n\t\t\treturn false\n\t\t}\n\t}\n\treturn true",
	},
	{
		"a pod that is listed keeps nothing", "pkg/manager/plan/adopt.go",
		`return "not unmounted: the pod is still listed, and its containers may still be running"`, `return ""`,
	},
	{
		"what cannot be resolved is taken away", "pkg/manager/plan/adopt.go",
		"case p.Unresolved != \"\":", "case p.Unresolved != \"\":\n\t\treturn \"\"\n\tcase p.Unresolved == \"never\":",
	},
	{
		"a reboot is not noticed", "pkg/manager/recover.go",
		"l.sameBoot = loaded.BootID == l.cfg.BootID; l.sameBoot", "l.sameBoot = true; l.sameBoot",
	},
	{
		"a failed look confirms a removal", "pkg/manager/call.go",
		"seen, err := c.cfg.Kernel.Look(ctx, path)\n\tif err != nil {", "seen, err := c.cfg.Kernel.Look(ctx, path)\n\tif err != nil && op.Kind.Removes() {\n\t\treturn nil\n\t}\n\tif err != nil {",
	},
	{
		"a failed write is believed", "pkg/manager/journal.go",
		"if err == nil {\n\t\treturn starts\n\t}", "if true {\n\t\treturn starts\n\t}",
	},
	{
		"the order of publish and stage", "pkg/manager/plan/next.go",
		"case v.Needs.Stage && v.Stage.Phase != state.Present:", "case v.Needs.Stage && v.Stage.Phase == state.Absent:",
	},
	{
		"two calls for one volume", "pkg/manager/decide.go",
		"v.call != nil || v.quarantined", "v.quarantined",
	},
	{
		"a volume is not in use while it is being staged", "pkg/state/volume.go",
		"return v.Stage.Phase != Absent || !v.Unmounted()", "return v.Stage.Phase == Present || !v.Unmounted()",
	},
	{
		"two pods have a volume for one", "pkg/manager/plan/next.go",
		"\tif exclusive(w, v) {", "\tif false {",
	},
	{
		"a repeated call says something else", "pkg/manager/plan/next.go",
		"(!m.MountSpec.Equal(wm.MountSpec) || mustUndo(w, v) || c.releasesExclusive(w, v, pod)):", "wm.Target == \"nowhere\":",
	},
	{
		"a boot id that was not stored is forgotten", "pkg/manager/recover.go",
		"time.AfterFunc(journalRetry,", "time.AfterFunc(1e6*journalRetry,",
	},
	{
		"a row that ends leaves the journal with a call that was not begun", "pkg/manager/volume.go",
		"if v.announced {", "if false {",
	},
	{
		"a step of the ladder is made at once", "pkg/manager/plan/ladder.go",
		"if due.After(c.now) {", "if false {",
	},
	{
		"what is not known to have failed is forced", "pkg/manager/plan/ladder.go",
		"case r.Here.IsZero():", "case false:",
	},
	{
		"an order is carried out more than once", "pkg/manager/ladder.go",
		"if o := v.order; o == s.op ||", "if o := v.order; false ||",
	},
	{
		"an order is carried out though it is refused", "pkg/manager/ladder.go",
		"if !stuck {\n", "if v != nil {\n\t\tv.order = plan.Op{Kind: plan.Unstage, Step: step}\n\t}\n\tif !stuck {\n",
	},
	{
		"a write that takes long is taken for done", "pkg/manager/journal.go",
		"if err := r.store.Commit(ctx, b); err != nil {",
		"done := make(chan error, 1)\n\tgo func() { done <- r.store.Commit(ctx, b) }()\n\tvar err error\n\tselect {\n\tcase err = <-done:\n\tcase <-time.After(time.Second):\n\t}\n\tif err != nil {",
	},
	{
		"a clock that was put back is not noticed", "pkg/manager/plan/renew.go",
		" || clockSetBack(m, now)", "",
	},
	{
		"nothing is renewed by time", "pkg/manager/plan/next.go",
		"c.wakeAt(m.RenewAt)", "",
	},
	{
		"what a kubelet mounted is not taken for mounted", "internal/tools/handover/adopt.go",
		"if there {\n\t\tm.Phase", "if there && false {\n\t\tm.Phase",
	},
	{
		"a stage without a pod is not taken over", "internal/tools/handover/csi.go",
		"a.setStage(&v, s)\n\ta.out.Records[id] = v", "a.setStage(&v, s)",
	},
	{
		"what is taken over is of another boot", "pkg/manager/offline.go",
		"o.store.SetBootID(ctx, o.bootID)", "error(nil)",
	},
	{
		"a release forgets a record", "internal/tools/handover/release.go",
		"r.out.Records = append(r.out.Records, id)", "if !v.Spec.Builtin {\n\t\t\tr.out.Records = append(r.out.Records, id)\n\t\t}",
	},
	{
		"a release forgets what is staged", "internal/tools/handover/release.go",
		"!v.Spec.Ephemeral && v.Spec.StagePath != \"\" {", "!v.Spec.Ephemeral && v.Spec.StagePath != \"\" && len(v.Mounts) > 0 {",
	},
	{
		"what is being removed is handed back", "internal/tools/handover/release.go",
		"leaving = leaving || m.Phase == state.Leaving", "leaving = leaving && m.Phase == state.Leaving",
	},
	{
		"what a volume needs follows its driver's version", "pkg/manager/plan/next.go",
		"if len(w.Pods) == 0 || v.Stage.Phase != state.Absent || !v.Unmounted() {",
		"if f.Driver.Up {\n\t\tv.Needs.Stage = f.Driver.Stage && v.Spec.StagePath != \"\"\n\t}\n\tif len(w.Pods) == 0 || v.Stage.Phase != state.Absent || !v.Unmounted() {",
	},
	{
		"an attachment is forgotten by a driver that attaches no more", "pkg/manager/plan/next.go",
		"case v.Unmounted() && v.Stage.Phase == state.Absent && mustGo(v.Attach, w, v)", "case v.Unmounted() && v.Stage.Phase == state.Absent && f.Driver.Attach && mustGo(v.Attach, w, v)",
	},
	{
		"what is mounted without a record counts for nothing", "pkg/manager/unrecorded.go",
		"if p, is := l.cfg.Place(path); is {", "if p, is := l.cfg.Place(path); is && false {",
	},
	{
		"a journal that lost records is believed", "pkg/manager/unrecorded.go",
		"if !r.Lost() && unreadable == 0 || l.cfg.Place == nil {", "if true {",
	},
	{
		"what is staged or published is not in use for a claim", "pkg/manager/usedby.go",
		"if known && (v.Quarantined", "if known && false && (v.Quarantined",
	},
	{
		"nothing wakes a volume after its pause", "pkg/manager/decide.go",
		"l.wakes.set(id, held.Until)", "",
	},
	{
		"something new is begun on a drained node", "pkg/manager/drain.go",
		"w.Hold = cmp.Or(w.Hold, reasonDrained)", "_ = reasonDrained",
	},
	{
		"an emptied node keeps what listed pods have", "pkg/manager/drain.go",
		"return state.Want{}", "w.Hold = cmp.Or(w.Hold, reasonEmptied)",
	},
	{
		"a pod is ready while the node is emptied", "pkg/manager/podvolume.go",
		`s.Quarantined == "" && !s.emptied &&`, `s.Quarantined == "" &&`,
	},
	{
		"a snapshot that no source lists is deleted", "internal/provision/controller/snapshotnext.go",
		"case r.Delete && r.Content.Phase == state.Present:", "case (r.Delete || w == nil) && r.Content.Phase == state.Present:",
	},
	{
		"a snapshot that is retained is deleted", "internal/provision/controller/snapshot.go",
		"case e.rec.Spec.Reclaim == Retain && e.rec.Content", "case false && e.rec.Content",
	},
	{
		"a volume that is retained is deleted", "internal/provision/controller/controller.go",
		"case e.rec.Spec.Reclaim == Retain && e.rec.Volume", "case false && e.rec.Volume",
	},
	{
		"a snapshot is cut beside another call", "internal/provision/controller/snapshotnext.go",
		`case o.verb == createSnapshot && f.Busy != "":`, `case false:`,
	},
	{
		"a volume is grown beside CreateSnapshot", "internal/provision/controller/loop.go",
		"if snap, ok := c.snapshots.inFlight[e.id()]; ok {", "if snap, ok := c.snapshots.inFlight[e.id()]; ok && false {",
	},
	{
		"a group is called frozen although an answer was lost", "internal/provision/controller/groupnext.go",
		"case !expired && o.from == state.Absent:", "case !expired:",
	},
	{
		"a group is called frozen although the freeze had ended", "internal/provision/controller/groupnext.go",
		"case !expired && o.from == state.Absent:", "case o.from == state.Absent:",
	},
	{
		"the freeze of a group ends before its snapshots are made", "internal/provision/controller/groupcall.go",
		"res := sendGroup(ctx, k, secret)\n\tres.expired = thaw(ctx)", "res := groupResult{expired: thaw(ctx)}\n\texpired := res.expired\n\tres = sendGroup(ctx, k, secret)\n\tres.expired = expired",
	},
	{
		"a group keeps its snapshots although the driver refused one", "internal/provision/controller/groupnext.go",
		"case r.anyMember(state.Absent): // all or none\n\t\tr.Content.Phase = state.Leaving", "case r.anyMember(state.Absent): // all or none\n\t\tr.Content.Phase, r.Members = state.Absent, nil",
	},
	{
		"an answer that a group lost is taken for nothing made", "internal/provision/controller/groupnext.go",
		"case o.from == state.Absent && makesNothing(res.err):", "case o.from == state.Absent:",
	},
	{
		"a group is made beside another call", "internal/provision/controller/groupnext.go",
		`case o.reservesVolumes() && f.Busy != "":`, `case false:`,
	},
	{
		"volumes are grown while a group is made of them", "internal/provision/controller/grouploop.go",
		"if o.reservesVolumes() { // now", "if false { // now",
	},
	{
		"a snapshot of a group is deleted alone", "internal/provision/controller/snapshot.go",
		"case e.group != nil:\n\t\treturn fmt", "case false:\n\t\treturn fmt",
	},
	{
		"a group that no source lists is deleted", "internal/provision/controller/groupnext.go",
		"case phase == state.Leaving, r.Delete && phase == state.Present:", "case phase == state.Leaving, (r.Delete || w == nil) && phase == state.Present:",
	},
	{
		"a group that is retained is deleted", "internal/provision/controller/group.go",
		"case e.rec.Spec.Reclaim == Retain && e.rec.Content", "case false && e.rec.Content",
	},
	{
		"a group goes while a volume is made of one of its snapshots", "internal/provision/controller/group.go",
		`if claim := c.restoring(m, true); claim != "" {`, `if claim := c.restoring(m, true); false {`,
	},
	{
		"the volume of a group goes before the journal says how the group was made", "internal/provision/controller/snapshotstatus.go",
		`if e.id() != "" && slices.Contains(g.unsavedVolumes, e.id()) {`, `if e.id() == "" && slices.Contains(g.unsavedVolumes, e.id()) {`,
	},
	{
		"what became of a group is not written", "internal/provision/controller/groupcall.go",
		"e.unsaved = true\n\tc.releaseGroupVolumes", "c.releaseGroupVolumes",
	},
	{
		"nothing looks at a group whose volume is free", "internal/provision/controller/grouploop.go",
		"if slices.Contains(e.volumes(), volume) {", "if slices.Contains(e.volumes(), volume) && false {",
	},
	{
		"a snapshot of a group takes the name of another", "internal/provision/controller/groupnext.go",
		`case f.Taken != "":`, `case false:`,
	},
	{
		"a group that is not ready lets its volumes go", "internal/provision/controller/snapshotstatus.go",
		"case content.Phase == state.Present && !e.rec.Ready && !e.rec.Delete:", "case content.Phase == state.Present && !e.rec.Ready && !e.rec.Delete && e.group == nil:",
	},
	{
		"file systems of a group stay frozen where one cannot be", "internal/provision/controller/groupcall.go",
		"if err := errors.Join(errs...); err != nil {\n\t\tthaw(ctx)", "if err := errors.Join(errs...); err != nil {",
	},
	{
		"a group that failed in part is deleted once, whatever the answer", "internal/provision/controller/groupnext.go",
		"gone = res.members[i].unasked || res.members[i].err == nil", "gone = true",
	},
}

// plantings are the bugs, one at a time.
func plantings() (all []planting) {
	for _, b := range bugs {
		all = append(all, planting{strings.ReplaceAll(b.name, " ", "-"), "", []bug{b}})
	}
	return slices.Concat(all, ownership, unfair, unfrozen)
}

// TestPlantedBugsAreFound runs the simulation once with each bug, and expects it to break a rule within
// 5,000 seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulation with the bugs")
	}
	program := sicken(t, root(t), plantings())
	if out, err := simulate(t, program, "", "-test.run=^TestSeeds$", "-seeds=300"); err != nil {
		t.Fatalf("without a bug: %v\n%s", err, out)
	}
	for _, p := range plantings() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			out, err := simulate(t, program, p.name, "-test.run=^TestSeeds$", "-seeds=5000", "-no-shrink", "-actor="+p.actor)
			if err == nil {
				t.Fatalf("not found:\n%s", out)
			}
			_, found, ok := strings.Cut(out, ": seed ")
			if !ok { // the manager may panic because of the bug first
				_, found, ok = strings.Cut(out, "panic: ")
				ok = ok && strings.Contains(found, "/pkg/manager.") && !strings.HasPrefix(found, "test timed out")
			}
			if !ok {
				t.Fatalf("it does not run: %v\n%s", err, out)
			}
			first, _, _ := strings.Cut(found, "\n")
			t.Logf("found by: %s", first)
		})
	}
}

// TestEveryBugHasItsPlace is the quick part of TestPlantedBugsAreFound: it fails if the product no
// longer has the text that a bug replaces.
func TestEveryBugHasItsPlace(t *testing.T) {
	for _, p := range plantings() {
		t.Run(p.name, func(t *testing.T) {
			g := graft{root: root(t), files: map[string]*grafted{}}
			if err := g.plant(p); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// root returns the project's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
