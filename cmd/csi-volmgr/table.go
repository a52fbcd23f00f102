package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// reasonWidth is how many characters of a reason a table shows; a wide table shows all.
const reasonWidth = 70

// column is one column of a table of things of type T.
type column[T any] struct {
	head  string
	wide  bool // only with -o wide
	state bool // a state, which has a colour on a terminal
	value func(item T, v view) string
}

// view is how to draw a table.
type view struct {
	now  time.Time
	wide bool
	// namespaces adds a column for the namespace, if several are shown.
	namespaces bool
	colours    bool
}

// look returns the view for a form of output.
func (p *program) look(form string) view {
	return view{now: p.now(), wide: form == formWide, colours: p.colours()}
}

// reason shortens the reason for a wait, unless the table is wide.
func (v view) reason(s string) string {
	if v.wide {
		return orNone(plain(s))
	}
	return orNone(short(s, reasonWidth))
}

// id returns a volume's id, in full only in a wide table.
func (v view) id(id state.VolumeID) string {
	if v.wide {
		return plain(string(id))
	}
	return plain(server.ShortID(id))
}

// age returns how long ago t was.
func (v view) age(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return server.Age(t, v.now)
}

// heads returns the heads of a table's columns.
func heads[T any](columns []column[T], v view) []string {
	var out []string
	for _, c := range shown(columns, v) {
		out = append(out, c.head)
	}
	return out
}

func row[T any](columns []column[T], item T, v view) []string {
	var out []string
	for _, c := range shown(columns, v) {
		out = append(out, c.value(item, v))
	}
	return out
}

func shown[T any](columns []column[T], v view) []column[T] {
	return slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool {
		return c.wide && !v.wide || c.head == "NAMESPACE" && !v.namespaces
	})
}

// writeTable writes items as a table.
func writeTable[T any](w io.Writer, columns []column[T], items []T, v view) error {
	rows := [][]string{heads(columns, v)}
	for _, item := range items {
		rows = append(rows, row(columns, item, v))
	}
	return writeAll(w, newGrid(columns, v).lines(rows))
}

// grid aligns rows. Its columns never shrink, so that rows can be added later.
type grid struct {
	widths []int
	states []bool // the columns that have colours
}

func newGrid[T any](columns []column[T], v view) *grid {
	g := new(grid)
	for _, c := range shown(columns, v) {
		g.widths, g.states = append(g.widths, 0), append(g.states, c.state && v.colours)
	}
	return g
}

func (g *grid) lines(rows [][]string) string {
	for _, cells := range rows {
		for i, c := range cells {
			g.widths[i] = max(g.widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		line := ""
		for i, c := range cells {
			pad := strings.Repeat(" ", g.widths[i]-utf8.RuneCountInString(c)+3)
			if g.states[i] {
				c = paint(c)
			}
			line += c + pad
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

var podColumns = []column[server.PodStatus]{
	{head: "NAMESPACE", value: func(p server.PodStatus, _ view) string { return p.Pod.Namespace }},
	{head: "NAME", value: func(p server.PodStatus, _ view) string { return p.Pod.Name }},
	{head: "MOUNTED", value: func(p server.PodStatus, _ view) string {
		return fmt.Sprintf("%d/%d", mountedOf(p), len(p.Volumes))
	}},
	{head: "STATUS", state: true, value: func(p server.PodStatus, _ view) string { return podState(p) }},
	{head: "SINCE", value: func(p server.PodStatus, v view) string { return v.age(waitingFor(p).Since) }},
	{head: "WAITING FOR", value: func(p server.PodStatus, v view) string { return v.reason(waitReason(p)) }},
	{head: "UID", wide: true, value: func(p server.PodStatus, _ view) string { return string(p.Pod.UID) }},
}

func mountedOf(p server.PodStatus) int {
	n := 0
	for _, v := range p.Volumes {
		if v.Mounted {
			n++
		}
	}
	return n
}

func podState(p server.PodStatus) string {
	switch {
	case !p.Listed:
		return "Leaving"
	case p.Ready:
		return "Mounted"
	case len(p.Volumes) == 0:
		return "Ended" // by its status.phase: a pod that runs is ready without a volume
	default:
		return "Mounting"
	}
}

// waitingFor returns the first of a pod's volumes that is not as wanted.
func waitingFor(p server.PodStatus) server.PodVolumeStatus {
	for _, v := range p.Volumes {
		if v.ID == "" || v.Step != "" || v.BlockedBy != "" {
			return v
		}
	}
	return server.PodVolumeStatus{}
}

func waitReason(p server.PodStatus) string {
	v := waitingFor(p)
	if len(v.Names) == 0 {
		return ""
	}
	why := v.BlockedBy
	if v.Retry.Attempts > 0 {
		why = v.Retry.Failure()
	}
	text := v.Names[0]
	if v.Step != "" {
		text += ": " + v.Step
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

var volumeColumns = []column[server.VolumeStatus]{
	{head: "ID", value: func(s server.VolumeStatus, v view) string { return v.id(s.Volume.ID) }},
	{head: "USED AS", value: func(s server.VolumeStatus, _ view) string { return usedAs(s.Volume.Spec.Value()) }},
	{head: "DRIVER", value: func(s server.VolumeStatus, _ view) string { return orNone(string(s.Volume.Spec.Driver)) }},
	{head: "STATUS", state: true, value: func(s server.VolumeStatus, _ view) string { return volumeState(s) }},
	{head: "SIZE", value: func(s server.VolumeStatus, _ view) string { return size(s.Volume.SizeBytes) }},
	{head: "PODS", value: func(s server.VolumeStatus, _ view) string { return fmt.Sprint(len(s.Wanted)) }},
	{head: "STEP", value: func(s server.VolumeStatus, _ view) string { return orNone(stepOf(s)) }},
	{head: "SINCE", value: func(s server.VolumeStatus, v view) string { return v.age(s.Since) }},
	{head: "WAITING FOR", value: func(s server.VolumeStatus, v view) string { return v.reason(volumeReason(s)) }},
	{head: "ATTACH", wide: true, value: func(s server.VolumeStatus, _ view) string {
		return s.Volume.Attach.Phase.String()
	}},
	{head: "STAGE", wide: true, value: func(s server.VolumeStatus, _ view) string {
		return s.Volume.Stage.Phase.String()
	}},
	{head: "STAGED AT", wide: true, value: func(s server.VolumeStatus, _ view) string {
		return orNone(s.Volume.Spec.StagePath)
	}},
}

// usedAs returns the name by which users know a volume.
func usedAs(s server.Spec) string {
	if s.Claim != "" {
		return "claim " + s.Claim
	}
	return orNone(s.Name)
}

// volumeState returns the furthest fact that is present.
func volumeState(s server.VolumeStatus) string {
	v := s.Volume
	mounted := false
	for _, m := range v.Mounts {
		mounted = mounted || m.Phase == state.Present
	}
	switch {
	case s.Quarantined != "":
		return "Quarantined"
	case mounted:
		return "Mounted"
	case v.Stage.Phase == state.Present:
		return "Staged"
	case v.Attach.Phase == state.Present:
		return "Attached"
	case v.Clear():
		return "Absent"
	default:
		return "InDoubt"
	}
}

func stepOf(s server.VolumeStatus) string {
	if s.Call.Kind != plan.None {
		return s.Call.Kind.String()
	}
	return s.Held.Step.String()
}

func volumeReason(s server.VolumeStatus) string {
	switch {
	case s.Quarantined != "":
		return s.Quarantined
	case s.Call.Kind != plan.None:
		return "the call's answer"
	}
	if r := retryOf(s); r.Attempts > 0 {
		return r.Failure()
	}
	return s.Held.Reason
}

// retryOf returns the retry status of the step that a volume is at.
func retryOf(s server.VolumeStatus) server.RetryStatus {
	switch k := s.Held.Step; k {
	case plan.Attach, plan.Detach:
		return s.Volume.Attach.Retry()
	case plan.Stage, plan.Unstage:
		return s.Volume.Stage.Retry()
	case plan.Expand:
		return s.Volume.ExpandFailed.Value()
	default:
		return s.Volume.Mounts[s.Held.Pod].Retry()
	}
}
