package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// States of a row, from best to worst.
const (
	good    = "good"    // as wanted
	working = "working" // a step is in flight or about to start
	blocked = "blocked" // something has to happen first; the text says what
	bad     = "bad"     // a step failed, or a driver is gone
)

// Row is one line of the page.
type Row struct {
	// Key is unique among all rows.
	Key string `json:"key"`
	// Kind is pod, volume, driver or problem.
	Kind string `json:"kind"`
	// Name is what a person calls it: "default/web", "data", "hostpath.csi.k8s.io".
	Name string `json:"name"`
	// Of is the key of the row that this row belongs to; "" if none.
	Of string `json:"of,omitempty"`
	// State is good, working, blocked or bad.
	State string `json:"state"`
	// What is the state in a few words: "mounted", "Stage".
	What string `json:"what"`
	// Why says in a sentence why it is not as wanted, with the text of its explanation.
	Why string `json:"why,omitempty"`
	// Detail lists its path, driver and claim.
	Detail string `json:"detail,omitempty"`
	// Since is when this state began; zero if unknown.
	Since time.Time `json:"since,omitzero"`
}

// look returns the rows for the current state, sorted by key.
func (h *Handler) look() []Row {
	var out []Row
	why := h.cfg.Why()
	for _, p := range h.cfg.Pods() {
		out = append(out, podRows(p, why)...)
	}
	for _, d := range h.cfg.Drivers() {
		out = append(out, driverRow(d))
	}
	for _, p := range h.cfg.Problems() {
		out = append(out, Row{
			Key: "problem " + p.Where + p.Text, Kind: "problem", Name: p.Where, State: bad, What: p.Text,
			Why: p.Why,
		})
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func podRows(p manager.PodStatus, why func(state.PodUID, manager.PodVolumeStatus) string) []Row {
	key := "pod " + string(p.Pod.UID)
	pod := Row{Key: key, Kind: "pod", Name: p.Pod.Namespace + "/" + p.Pod.Name, State: good, What: "ready"}
	out := make([]Row, 1, 1+len(p.Volumes))
	mounted, worst := 0, good
	for _, v := range p.Volumes {
		r := volumeRow(key, p.Listed, v)
		if r.State != good {
			r.Why = why(p.Pod.UID, v)
		}
		if v.Mounted {
			mounted++
		}
		worst = worse(worst, r.State)
		out = append(out, r)
	}
	switch {
	case !p.Listed:
		pod.State, pod.What = worse(working, worst), "leaving"
	case !p.Ready && len(p.Volumes) == 0: // its status.phase says so
		pod.What = "ended"
	case !p.Ready || worst == bad:
		pod.State, pod.What = worse(working, worst), fmt.Sprintf("%d of %d mounted", mounted, len(p.Volumes))
	}
	out[0] = pod
	return out
}

func volumeRow(pod string, listed bool, v manager.PodVolumeStatus) Row {
	name := strings.Join(v.Names, ", ")
	r := Row{
		Key: pod + "/" + name, Kind: "volume", Name: name, Of: pod, State: good, What: "mounted",
		Detail: detail(v), Since: v.Since,
	}
	if v.Mounted && listed && v.Step == plan.None {
		if v.Drift != "" {
			r.State = bad
		}
		return r
	}
	r.State, r.What = working, v.Step.String()
	if r.What == "" {
		r.What = strings.ToLower(v.Phase.String())
	}
	if v.BlockedBy != "" {
		r.State = blocked
	}
	if v.Retry.Attempts > 0 {
		r.State = bad
		r.What = fmt.Sprintf("%s, failed %d times", r.What, v.Retry.Attempts)
	}
	return r
}

func detail(v manager.PodVolumeStatus) string {
	var parts []string
	for _, s := range []string{string(v.Driver), v.Claim, v.HostPath} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " · ")
}

func driverRow(d manager.DriverStatus) Row {
	r := Row{
		Key: "driver " + string(d.Name), Kind: "driver", Name: string(d.Name), State: good, What: "up",
		Why: d.Problem, Since: d.Since, Detail: fmt.Sprintf("volumes: %d, calls in flight: %d", d.Volumes, d.Calls),
	}
	switch {
	case !d.Up && d.Volumes > 0:
		r.State, r.What = bad, "gone"
	case !d.Up:
		r.State, r.What = blocked, "gone"
	case d.Problem != "":
		r.State = blocked
	}
	return r
}

func worse(a, b string) string {
	order := []string{good, working, blocked, bad}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// changes are the differences between two successive looks.
type changes struct {
	Set  []Row    `json:"set,omitempty"`
	Gone []string `json:"gone,omitempty"`
}

// diff compares two sorted looks.
func diff(before, now []Row) changes {
	var c changes
	old := make(map[string]Row, len(before))
	for _, r := range before {
		old[r.Key] = r
	}
	for _, r := range now {
		if o, ok := old[r.Key]; !ok || o != r {
			c.Set = append(c.Set, r)
		}
		delete(old, r.Key)
	}
	for _, r := range before {
		if _, left := old[r.Key]; left {
			c.Gone = append(c.Gone, r.Key)
		}
	}
	return c
}

func (c changes) empty() bool { return len(c.Set) == 0 && len(c.Gone) == 0 }

// Problem is something that a source could not read, or a volume that outlives its
// pods.
type Problem struct {
	// Where is the file, line and object, as far as known.
	Where string
	Text  string
	// Why says in a sentence why the problem persists; "" if Text says it.
	Why string
}
