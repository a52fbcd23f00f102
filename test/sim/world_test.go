package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// volume is a volume that pods may name.
type volume struct {
	driver state.DriverName
	// own: every pod has its own; otherwise the pods share one.
	own               bool
	inline, exclusive bool
	expandable        bool
	// renewed: its driver wants Publish to be repeated.
	renewed bool
	block   bool // pods have it as a device
	claimed bool // it is made for a claim, and deleted with it
	crowded bool // the crowd has it
}

// volumes has one volume of each kind that the manager distinguishes, and those of the crowd.
var volumes = withCrowd(map[string]volume{
	"v0": {driver: "d", expandable: true},
	"v1": {driver: "d", expandable: true, exclusive: true},
	"v2": {driver: "att"},
	"v3": {driver: "plain", expandable: true},
	"v4": {driver: "dir", own: true},
	"v5": {driver: "d", own: true, inline: true},
	"v6": {driver: "att"},
	"v7": {driver: emptyDir, own: true},
	"v8": {driver: "image", own: true},
	"v9": {driver: "disk", expandable: true},

	"v10": {driver: "token", own: true, inline: true, renewed: true},
	"v11": {driver: "d", expandable: true, block: true},

	"pvc-0": {driver: "d", expandable: true, claimed: true},
	"pvc-1": {driver: "d", expandable: true, claimed: true},
	"pvc-2": {driver: "d", expandable: true, claimed: true},
	"pvc-3": {driver: "d", expandable: true, claimed: true},
	"pvc-4": {driver: "d", expandable: true, claimed: true},
	"pvc-5": {driver: "d", expandable: true, claimed: true},
	"pvc-6": {driver: "d", expandable: true, claimed: true},
	"pvc-7": {driver: "d", expandable: true, claimed: true},
})

func withCrowd(all map[string]volume) map[string]volume {
	for _, name := range crowded {
		all[name] = volume{driver: all["v4"].driver, own: true, crowded: true}
	}
	return all
}

// emptyDir is the built-in kind that a kubelet stores in the same way as the daemon.
const emptyDir = "kubernetes.io/empty-dir"

var drivers = map[state.DriverName]manager.DriverInfo{
	"d":     {Name: "d", Stage: true, Expand: true, MountsTarget: true},
	"att":   {Name: "att", Stage: true, Attach: true, MountGroup: true, MountsTarget: true},
	"plain": {Name: "plain", Expand: true, MountsTarget: true},
	"dir":   {Name: "dir", Builtin: true},
	"image": {Name: "image", Builtin: true, MountsTarget: true},
	"token": {Name: "token", MountsTarget: true},
	"disk":  {Name: "disk", Builtin: true, Stage: true, Expand: true, MountsTarget: true},

	emptyDir: {Name: emptyDir, Builtin: true},
}

// otherwise is what other versions of a driver can do; the first is number 1.
var otherwise = map[state.DriverName][]manager.DriverInfo{
	"d": {
		{Name: "d", Stage: true, MountGroup: true, MountsTarget: true},
		{Name: "d", Expand: true, MountsTarget: true},
		{Name: "d", Attach: true, Stage: true, MountsTarget: true},
	},
	"att": {
		{Name: "att", Stage: true, Attach: true, Expand: true, MountsTarget: true},
		{Name: "att", Stage: true, MountGroup: true, MountsTarget: true},
		{Name: "att", Attach: true, MountsTarget: true},
	},
	"plain": {
		{Name: "plain", Stage: true, Expand: true, MountsTarget: true},
		{Name: "plain", Attach: true, Stage: true, MountsTarget: true},
	},
	"token": {
		{Name: "token", Stage: true, MountsTarget: true},
	},
}

var pods = []string{"a", "b", "c"}

// sources report pods; each pod has one source.
var sources = []string{"file", "api"}

func sourceOf(pod string) string {
	if pod == "c" || pod == crowd {
		return "api"
	}
	return "file"
}

// wish is what a pod's owner wants from one volume.
type wish struct {
	rev         string
	ro, problem bool
	group       int64 // the pod's fsGroup, or 0
}

// object is the content of the volume's own object, the same for all pods.
type object struct {
	fs   string
	size int64
	hold bool
}

// pod is a source's view of one pod.
type pod struct {
	stopped bool
	vols    map[string]wish
}

// mount is what the kernel has at a path.
type mount struct {
	dir    bool // a directory without a mount
	block  bool // a device is mounted
	dev    uint64
	layers int
}

// world is everything but the manager: the truth.
type world struct {
	set settings
	mu  sync.Mutex // guards the fields below

	// table survives the daemon; disk and attached survive the node's reboot.
	table    map[string]mount
	attached map[state.VolumeID]bool
	disk     *disk
	boot     int
	ended    int // how often unfinished attachments of drivers came to nothing
	// jumps is how far the node's clock moves forward (or back) before the next life. Within a life
	// the manager compares by the monotonic clock.
	jumps time.Duration
	// late counts work that a driver still does after its call has ended.
	late map[state.VolumeID]int

	wishes  map[string]pod
	objects map[string]object
	down    map[state.DriverName]bool
	twins   map[state.DriverName]bool // a second instance waits for the name
	version map[state.DriverName]int  // of the next instance
	frozen  map[string]bool           // volumes whose calls hang
	faults  faults
	look    string // how looks go: "" well, "fail", "hang"
	silent  map[string]bool
	calm    bool // the end: sources speak at once

	life  *life
	lives int
	judge *judge
	trap  trap
	// claims and cuts (snapshots) are those that sources list, by name. asks is what owners want
	// besides a volume, orders how many deletions they may have.
	claims, cuts map[string]bool
	// groups are the group snapshots that sources list, or once listed.
	groups map[string]grouped
	asks   map[string]asked
	orders map[string]int
	// asked holds what was to be deleted by an order since the journal was last damaged.
	asked map[string]bool
	// foreign are the claims whose volume another author lists as a PersistentVolume of its own.
	foreign map[string]bool
	// unlisted counts how often a claim ceased to be listed.
	unlisted map[string]int
	// backend and shelf are the storage's volumes and snapshots.
	backend, shelf map[string]*stored
	// bundles are the storage's group snapshots, by id; holds are the frozen file systems.
	bundles map[string]*bundle
	holds   map[state.VolumeID]*hold
	// kubelet: a kubelet has the volumes, and the daemon does not run. notes are the kubelet's
	// files, by path.
	kubelet  bool
	notes    map[string]handover.Notes
	authors  *authors
	schedule scheduled
	// takeovers counts the adoptions. unknown has the staging paths of calls that adopt could not
	// know of, and the number of that adoption.
	takeovers int
	unknown   map[string]int
	// drain is the operator's newest order about the node as a whole, as the journal has it.
	drain  manager.Drain
	told   bool // the kernel's notification of a change is pending
	broken string
	count  *tally
	now    string // the current step, for a breach
}

// settings are fixed for a script, in its first line.
type settings struct {
	salt               uint64
	handshake, limited bool
	weak               bool // drivers unmount one layer per call
	volumes            []string
	groups             bool // driver d makes group snapshots with one call
	authors            bool // two authors share PersistentVolumes
	schedules          bool // a claim has a schedule of snapshots
	crowds             bool // a pod has very many volumes
	lost               bool // deletions are asked for before the journal loses records
}

func (s settings) String() string {
	return fmt.Sprintf("world salt=%d handshake=%v limited=%v weak=%v volumes=%s", s.salt, s.handshake, s.limited, s.weak, strings.Join(s.volumes, ","))
}

func parseSettings(line string) (s settings, err error) {
	var vols string
	_, err = fmt.Sscanf(line, "world salt=%d handshake=%t limited=%t weak=%t volumes=%s", &s.salt, &s.handshake, &s.limited, &s.weak, &vols)
	s.volumes = strings.Split(vols, ",")
	s.groups, s.authors = strings.Contains(line, " groups=true"), strings.Contains(line, " authors=true")
	s.lost = strings.Contains(line, " lost=true")
	s.crowds = strings.Contains(line, " crowds=true")
	s.schedules = strings.Contains(line, " schedules=true")
	return s, err
}

func newWorld(set settings, count *tally) *world {
	w := &world{
		set: set, table: map[string]mount{}, attached: map[state.VolumeID]bool{}, late: map[state.VolumeID]int{},
		wishes: map[string]pod{}, down: map[state.DriverName]bool{}, twins: map[state.DriverName]bool{}, version: map[state.DriverName]int{}, frozen: map[string]bool{}, silent: map[string]bool{},
		count: count, boot: 1,
	}
	w.objects = map[string]object{}
	for _, name := range set.volumes {
		w.objects[name] = object{fs: "x", size: 1}
	}
	w.claims, w.cuts, w.asks, w.orders = map[string]bool{}, map[string]bool{}, map[string]asked{}, map[string]int{}
	w.asked = map[string]bool{}
	w.unlisted, w.foreign = map[string]int{}, map[string]bool{}
	w.backend, w.shelf = map[string]*stored{}, map[string]*stored{}
	w.groups, w.bundles, w.holds = map[string]grouped{}, map[string]*bundle{}, map[state.VolumeID]*hold{}
	w.notes, w.unknown = map[string]handover.Notes{}, map[string]int{}
	w.disk, w.authors = newDisk(), newAuthors()
	w.judge = newJudge(w)
	return w
}

// breach records the first broken rule; mu is held.
func (w *world) breach(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...) + fmt.Sprintf("\n  at %v, life %d, step %q", time.Since(epoch), w.lives, w.now)
	}
}

// epoch is the start time of every testing/synctest bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// dice returns numbers that depend on the script and on their purpose, not on the order in which
// goroutines ask.
func (w *world) dice(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, w.set.salt)
	for _, p := range parts {
		fmt.Fprint(h, "\x00", p)
	}
	x := h.Sum64() // the low bits of fnv alone are poor
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

func (w *world) specOf(uid, name string) (state.VolumeID, state.Spec) {
	v := volumes[name]
	s := state.Spec{Driver: v.driver, Name: name, Mode: state.Filesystem, FSType: w.objects[name].fs, Ephemeral: v.inline, Builtin: drivers[v.driver].Builtin}
	if v.block {
		s.Mode, s.FSType = state.Block, ""
	}
	if v.exclusive {
		s.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
	}
	if v.own {
		if v.inline {
			s.Handle = state.EphemeralHandle(state.PodUID(uid), name)
		}
		return state.PodVolumeID(v.driver, state.PodUID(uid), name), s
	}
	s.Handle = name
	s.StagePath = stagePath(name)
	return state.SharedID(v.driver, name), s
}

// wantOf returns a pod as its source and the resolution report it. late: its objects cannot be
// found yet.
func (w *world) wantOf(uid string, late bool) state.PodWant {
	p := w.wishes[uid]
	ref := state.Pod{UID: state.PodUID(uid), Namespace: w.namespaceOf(uid), Name: uid}
	want := state.PodWant{Pod: ref, Stopped: p.stopped}
	for _, name := range sortedKeys(p.vols) {
		ws := p.vols[name]
		if ws.problem || late || volumes[name].claimed && !w.life.bound(name) {
			want.Volumes = append(want.Volumes, state.VolumeWant{Names: []string{name}, Problem: "claim " + name + " cannot be looked up"})
			continue
		}
		id, spec := w.specOf(uid, name)
		vw := state.VolumeWant{
			Names: []string{name}, ID: id, Spec: spec, Revision: ws.rev, SizeBytes: w.objects[name].size,
			Mount: state.MountSpec{Pod: ref, Names: []string{name}, Target: target(uid, name), ReadOnly: ws.ro},
		}
		vw.Mount.Renewal.Republish = volumes[name].renewed
		if volumes[name].block {
			vw.Mount.DevicePath = layout.DevicePath(ref.UID, name)
		}
		if ws.group != 0 {
			vw.Mount.FSGroup = &ws.group
		}
		if w.objects[name].hold {
			vw.Hold = "its attachment is missing"
		}
		want.Volumes = append(want.Volumes, vw)
	}
	return want
}

// change adds or removes a mount, and lets the kernel notify the daemon; mu is held.
func (w *world) change(path string, m *mount) {
	if m == nil {
		delete(w.table, path)
	} else {
		w.table[path] = *m
		delete(w.judge.vanished, path)
	}
	if w.told {
		return
	}
	w.told = true
	time.AfterFunc(time.Duration(1+w.dice("notify", short(path))%20)*time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = false
		if w.life == nil || w.life.dead {
			return
		}
		w.tellMounts()
	})
}

// tellMounts passes on the kernel's mounts; mu is held.
func (w *world) tellMounts() {
	mounts := map[string]state.Seen{}
	for p, m := range w.table {
		if !m.dir {
			mounts[p] = w.seen(p)
		}
	}
	w.life.m.MountsSeen(mounts)
}

func (w *world) devOf(id state.VolumeID) uint64 { return w.dice("dev", id, w.boot)%1e6 + 1 }

// trap kills the daemon at a future commit or call.
type trap struct {
	at   string // "commit", "call"; "" for none
	left int
	// after: the commit becomes durable, or the call takes effect.
	after bool
	// power: the node dies, not only the daemon.
	power bool
}

// ends ends a life as the trap demands; mu is held.
func (w *world) ends(l *life) {
	if w.trap.power && l == w.life {
		w.count.crashes["of the power"]++
		w.powerOff()
	}
	l.die()
}

// springs counts down one event, and reports whether the trap springs; mu is held.
func (w *world) springs(at string) bool {
	if w.trap.at != at {
		return false
	}
	w.trap.left--
	if w.trap.left > 0 {
		return false
	}
	w.trap.at = ""
	return true
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
