package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// script makes the script of a seed: its first line has the world's settings, every other line is
// one step.
func script(seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 20))
	set := settings{salt: r.Uint64N(1e9), handshake: r.IntN(8) == 0, limited: r.IntN(4) == 0, weak: r.IntN(3) == 0}
	all := slices.DeleteFunc(sortedKeys(volumes), func(name string) bool { return volumes[name].block || volumes[name].claimed || volumes[name].crowded })
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	set.volumes = all[:1+r.IntN(4)]
	lines := []string{set.String()}
	if r.IntN(4) > 0 {
		lines = append(lines, fmt.Sprintf("faults %d %d", []int{5, 15, 30, 60}[r.IntN(4)], r.IntN(1e6)))
	}
	hands := r.IntN(4) == 0
	if hands && r.IntN(2) == 0 {
		lines = append(lines, "release")
	}
	for range 8 + r.IntN(30) {
		if hands && r.IntN(3) == 0 {
			lines = append(lines, handing(r))
		} else {
			lines = append(lines, step(r, set))
		}
	}
	return harder(seed, lines, hands)
}

// harder adds rare events: in one script of five the journal is damaged, in one of four a volume is
// a device, in another of four it has a claim, and some of the daemon's deaths are the node's. In
// scripts with a claim and without damage, the owner has the volume copied, changed and cut, in
// three of four also with others in groups. One in four has two authors, and one in twelve a
// schedule. One in four with low limits has a pod with very many volumes. Separate dice keep the other steps unchanged.
func harder(seed uint64, lines []string, hands bool) []string {
	r, d, g := rand.New(rand.NewPCG(seed, 21)), rand.New(rand.NewPCG(seed, 22)), rand.New(rand.NewPCG(seed, 23))
	f := rand.New(rand.NewPCG(seed, 24))
	fills := f.IntN(4) == 0
	o := rand.New(rand.NewPCG(seed, 25))
	drained := o.IntN(4) == 0
	damaged, other := r.IntN(5) == 0 && !hands, []string{"v0", "v0", "v11", "pvc-0"}[r.IntN(4)]
	claimed := other == "pvc-0" && !hands
	stores := claimed && !damaged
	groups := stores && g.IntN(4) > 0
	a := rand.New(rand.NewPCG(seed, 26))
	authors := a.IntN(4) == 0 && !hands
	if authors {
		lines[0] += " authors=true"
	}
	if groups && g.IntN(2) == 0 {
		lines[0] += " groups=true"
	}
	y := rand.New(rand.NewPCG(seed, 29))
	lost := !damaged && stores && y.IntN(8) == 0
	if lost {
		lines[0] += " lost=true"
	}
	x := rand.New(rand.NewPCG(seed, 28))
	shares := stores && !lost && x.IntN(3) == 0
	if shares {
		lines[0] += " shares=true"
	}
	p := rand.New(rand.NewPCG(seed, 27))
	schedules := p.IntN(12) == 0 && !hands
	if schedules {
		lines[0] += " schedules=true"
	}
	z := rand.New(rand.NewPCG(seed, 31))
	c := rand.New(rand.NewPCG(seed, 30))
	crowds := c.IntN(4) == 0 && !hands && strings.Contains(lines[0], " limited=true")
	if crowds {
		lines[0] += " crowds=true"
	}
	for i, line := range lines {
		if (claimed || other == "v11") && !strings.HasPrefix(line, "driver ") {
			lines[i] = strings.ReplaceAll(line, "v0", other) // which is like v0 in all else
		}
	}
	all := lines[:1:1]
	if schedules {
		all = append(all, "claim "+kept, "schedule 2")
	}
	if authors {
		all = append(all, "pv p0 x,,", "pv p1 xx,,")
	}
	if claimed {
		all = append(all, "claim pvc-0")
	}
	for _, line := range lines[1:] {
		if authors && strings.HasPrefix(line, "disk ") {
			continue // what fails is the record of an owner, and nothing makes a pod wait for that
		}
		if strings.HasPrefix(line, "trap ") && r.IntN(3) == 0 {
			line += " power"
		}
		if all = append(all, line); damaged && r.IntN(7) == 0 {
			all = append(all, []string{"damage", "damage", "damage", "accept"}[r.IntN(4)])
		}
		if claimed && r.IntN(5) == 0 {
			all = append(all, [][]string{
				{"claim pvc-0"},
				{"unclaim pvc-0"},
				{"remove a", "remove b", "remove c", "unclaim pvc-0"},
			}[r.IntN(3)]...)
		}
		if stores && d.IntN(2) == 0 {
			all = append(all, storing(d)...)
		}
		if groups && g.IntN(5) < 2 {
			all = append(all, grouping(g)...)
		}
		if groups && z.IntN(5) == 0 { // the daemon ends during a freeze
			wait := []string{"1ms", "19ms", "100ms", "600ms"}[z.IntN(4)]
			all = append(all, "group g0 pvc-0,pvc-4", "wait "+wait, "restart")
		}
		if authors && a.IntN(2) == 0 {
			all = append(all, authoring(a)...)
		}
		if lost && y.IntN(6) == 0 {
			all = append(all, losing(y)...)
		}
		if shares && x.IntN(3) == 0 {
			all = append(all, sharing(x)...)
		}
		if schedules && p.IntN(2) == 0 {
			all = append(all, scheduling(p)...)
		}
		if crowds && c.IntN(2) == 0 {
			all = append(all, crowding(c)...)
		}
		if drained && o.IntN(5) == 0 {
			all = append(all, draining(o))
		}
		if fills && f.IntN(4) == 0 {
			all = append(all, []string{"full", "full", "room"}[f.IntN(3)])
		}
	}
	return all
}

// handing returns a step for a node that is handed over, back and forth.
func handing(r *rand.Rand) string {
	uid := pods[r.IntN(len(pods))]
	switch roll := r.IntN(14); {
	case roll < 3:
		return "release"
	case roll < 7:
		return fmt.Sprintf("kubelet %s %d", uid, []int{-1, -1, 1, 2, 3, 5, 8}[r.IntN(7)])
	case roll < 10:
		return "adopt " + []string{"", "gone"}[r.IntN(2)]
	case roll < 11:
		return "remove " + uid
	case roll < 12:
		return fmt.Sprintf("driver v%d %s", r.IntN(4), sortedKeys(otherwise)[r.IntN(len(otherwise))])
	default:
		return fmt.Sprintf("trap commit %d %v", 1+r.IntN(3), r.IntN(2) == 0)
	}
}

// step returns a random step.
func step(r *rand.Rand, set settings) string {
	uid := pods[r.IntN(len(pods))]
	vol := set.volumes[r.IntN(len(set.volumes))]
	name := sortedKeys(drivers)[r.IntN(len(drivers))]
	switch roll := r.IntN(108); {
	case roll < 22:
		return "pod " + uid + someVolumes(r, set)
	case roll < 26:
		return fmt.Sprintf("object %s %s %d %v", vol, []string{"x", "x", "y"}[r.IntN(3)], 1+r.IntN(3), r.IntN(4) == 0)
	case roll < 36:
		return "remove " + uid
	case roll < 39:
		return "stop " + uid
	case roll < 62:
		waits := []string{"1ms", "19ms", "21ms", "100ms", "600ms", "3s", "31s", "3m", "12m"}
		return "wait " + waits[r.IntN(len(waits))]
	case roll < 64:
		return "crash"
	case roll < 66: // it comes with a crash
		return "clock " + []string{"-9000h", "-30h", "-2h", "9000h"}[r.IntN(4)]
	case roll < 70:
		return fmt.Sprintf("trap commit %d %v", 1+r.IntN(4), r.IntN(2) == 0)
	case roll < 75:
		return fmt.Sprintf("trap call %d %v", 1+r.IntN(6), r.IntN(2) == 0)
	case roll < 77:
		return "restart"
	case roll < 79:
		return "reboot"
	case roll < 83:
		return fmt.Sprintf("driver %s %s", []string{"down", "up", "kill", "kill", "twin", "v0", "v1", "v2", "v3"}[r.IntN(9)], name)
	case roll < 85:
		return fmt.Sprintf("vanish %s", vol)
	case roll < 87:
		return fmt.Sprintf("vanish %s %s", vol, uid)
	case roll < 89:
		return "look " + []string{"well", "well", "fail", "fail", "hang"}[r.IntN(5)]
	case roll < 92:
		return fmt.Sprintf("faults %d %d", []int{0, 0, 10, 40, 90}[r.IntN(5)], r.IntN(1e6))
	case roll < 94 && !set.limited:
		return []string{"freeze ", "thaw "}[r.IntN(2)] + vol
	case roll < 96:
		return fmt.Sprintf("disk %d", 1+r.IntN(3))
	case roll < 98:
		return []string{"silence ", "speak "}[r.IntN(2)] + []string{"file", "api"}[r.IntN(2)]
	case roll < 99:
		return "retry " + vol
	case roll < 100:
		return "report"
	case roll < 105:
		return "order " + []state.UnmountStep{state.UnmountForce, state.UnmountLazy}[r.IntN(2)].String()
	default:
		return "commits " + []string{"0s", "1ms", "300ms", "2s", "5s"}[r.IntN(5)]
	}
}

func someVolumes(r *rand.Rand, set settings) string {
	var b strings.Builder
	for _, name := range set.volumes {
		if r.IntN(4) == 0 {
			continue
		}
		b.WriteString(" " + name)
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, ",rev=%d", r.IntN(3))
		}
		if r.IntN(6) == 0 {
			b.WriteString(",ro")
		}
		if r.IntN(12) == 0 {
			b.WriteString(",problem")
		}
		if r.IntN(6) == 0 {
			fmt.Fprintf(&b, ",group=%d", 1+r.IntN(2))
		}
	}
	return b.String()
}

func parseWish(s string) (name string, ws wish, err error) {
	f := strings.Split(s, ",")
	for _, f := range f[1:] {
		switch key, value, _ := strings.Cut(f, "="); key {
		case "rev":
			ws.rev = value
		case "ro":
			ws.ro = true
		case "problem":
			ws.problem = true
		case "group":
			if ws.group, err = strconv.ParseInt(value, 10, 64); err != nil {
				return "", ws, fmt.Errorf("wish %q: %w", s, err)
			}
		default:
			return "", ws, fmt.Errorf("wish %q: field %q is not known", s, key)
		}
	}
	return f[0], ws, nil
}

// do executes one step.
func (w *world) do(line string) error {
	f := strings.Fields(line)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	w.mu.Lock()
	w.now = line
	w.mu.Unlock()
	switch f[0] {
	case "wait":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		w.pass(d)
		return nil
	case "crash":
		w.kill("between calls")
	case "restart":
		w.stop()
	case "reboot":
		w.reboot()
	case "damage":
		w.damage()
	case "accept":
		w.accept()
	case "release":
		w.release()
	case "adopt":
		w.adopt(arg(1))
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.doLocked(f[0], arg, f)
	}
	return nil
}

// doLocked executes the steps that only change the world; mu is held.
func (w *world) doLocked(verb string, arg func(int) string, f []string) error {
	switch verb {
	case "pod":
		p := pod{vols: map[string]wish{}}
		for _, s := range f[2:] {
			name, ws, err := parseWish(s)
			if err != nil {
				return err
			}
			p.vols[name] = ws
		}
		w.wishes[arg(1)] = p
		w.tell(arg(1))
	case "object":
		size, err := strconv.ParseInt(arg(3), 10, 64)
		if err != nil {
			return err
		}
		w.objects[arg(1)] = object{arg(2), size, arg(4) == "true"}
		for _, uid := range pods {
			if _, ok := w.wishes[uid].vols[arg(1)]; ok {
				w.tell(uid)
			}
		}
	case "remove", "stop":
		p, ok := w.wishes[arg(1)]
		if !ok {
			return nil
		}
		w.judge.stopped(arg(1))
		delete(w.wishes, arg(1))
		if p.stopped = true; verb == "stop" {
			w.wishes[arg(1)] = p
		}
		w.tell(arg(1))
	case "crowd":
		n, err := strconv.Atoi(arg(1))
		w.crowds(n)
		return err
	case "claim":
		w.claim(arg(1))
	case "unclaim":
		w.unclaim(arg(1), arg(2) == "data")
	case "grow":
		w.ask(arg(1), func(a *asked) { a.size++ })
	case "modify":
		w.ask(arg(1), func(a *asked) { a.attributes = arg(2) })
	case "cut":
		w.cut(arg(1))
	case "uncut":
		w.uncut(arg(1), arg(2) == "data")
	case "group":
		w.group(arg(1), strings.Split(arg(2), ","))
	case "ungroup":
		w.ungroup(arg(1), arg(2) == "data")
	case "hurry":
		w.life.c.RetryGroup(keyOf(arg(1)))
	case "pv", "unpv", "ask", "unask", "withdraw", "use", "unuse", "give":
		w.author(verb, arg(1), arg(2))
	case "list", "unlist":
		w.foreign[arg(1)] = verb == "list"
	case "schedule":
		keep, err := strconv.Atoi(arg(1))
		w.tend(keep, arg(2) == "sure")
		return err
	case "kubelet":
		steps, err := strconv.Atoi(arg(2))
		w.syncs(arg(1), steps)
		return err
	case "trap":
		left, err := strconv.Atoi(arg(2))
		if err != nil {
			return err
		}
		w.trap = trap{at: arg(1), left: left, after: arg(3) == "true", power: arg(4) == "power"}
	case "driver":
		w.driver(arg(1), state.DriverName(arg(2)))
	case "vanish":
		path := stagePath(arg(1))
		if arg(2) != "" {
			path = target(arg(2), arg(1))
		}
		w.vanish(path)
	case "look":
		if w.look = arg(1); w.look == "well" {
			w.look = ""
		}
	case "faults":
		percent, err := strconv.ParseUint(arg(1), 10, 64)
		if err != nil {
			return err
		}
		salt, err := strconv.ParseUint(arg(2), 10, 64)
		w.faults = faults{percent, salt}
		return err
	case "freeze":
		w.frozen[arg(1)] = true
	case "thaw":
		delete(w.frozen, arg(1))
	case "disk":
		n, err := strconv.Atoi(arg(1))
		w.disk.fail = n
		return err
	case "full", "room":
		w.disk.full = verb == "full"
	case "commits":
		d, err := time.ParseDuration(arg(1))
		w.disk.takes = d
		return err
	case "clock":
		d, err := time.ParseDuration(arg(1))
		w.jumps += d // found by the next life
		w.count.faults["clock"]++
		w.life.die()
		return err
	case "order":
		for _, id := range sortedKeys(w.disk.records) { // a volume without a record has no stuck unmount
			w.life.order(id, state.UnmountStep(arg(1)))
		}
	case "drain":
		w.drainTo(drains[arg(1)])
	case "silence":
		w.silent[arg(1)] = true
	case "speak":
		delete(w.silent, arg(1))
		w.life.speak(arg(1), false)
	case "retry":
		for _, uid := range pods {
			id, _ := w.specOf(uid, arg(1))
			w.life.m.RetryNow(id)
		}
	case "report":
		w.life.m.MarkVolumesAsReportedInUse(w.life.m.GetVolumesInUse())
	default:
		return fmt.Errorf("step %q is not known", strings.Join(f, " "))
	}
	return nil
}

// tell passes a pod on if its source has spoken in this life; mu is held.
func (w *world) tell(uid string) {
	if w.life.spoken[sourceOf(uid)] && !w.kubelet {
		w.life.tell(uid)
	}
}

func (w *world) driver(what string, name state.DriverName) {
	if drivers[name].Builtin {
		return
	}
	switch what {
	case "down":
		w.life.drop(name)
		w.life.m.DriverDown(name, "the script took it down")
		if w.down[name] = !w.twins[name]; !w.down[name] { // the waiting instance gets the name at once
			delete(w.twins, name)
			w.life.up(name)
		}
	case "up": // if it is up, it registers again before its end is noticed
		delete(w.down, name)
		w.life.up(name)
	case "twin": // a second instance registers; it gets the name when the first is gone
		w.count.faults["twin"]++
		if w.twins[name] = !w.down[name]; w.down[name] {
			delete(w.down, name)
			w.life.up(name)
		}
	case "swap": // the next instance has another version
		w.upgrade(name, 1-min(w.version[name], 1))
	case "v0", "v1", "v2", "v3":
		w.upgrade(name, int(what[1]-'0'))
	case "kill": // and it comes back by itself
		w.count.crashes["of a driver"]++
		w.life.drop(name)
		w.life.m.DriverDown(name, "killed")
		if w.twins[name] { // and becomes the one that waits
			w.life.up(name)
			return
		}
		w.life.after("back", string(name), func() { w.life.up(name) })
	}
}

// upgrade sets the version of a driver's next instance, if there is such a version.
func (w *world) upgrade(name state.DriverName, version int) {
	w.count.faults["other version"]++
	w.version[name] = min(version, len(otherwise[name]))
}

// vanish is an umount by another program; mu is held.
func (w *world) vanish(path string) {
	if m, ok := w.table[path]; !ok || m.dir {
		return
	}
	w.count.faults["vanish"]++
	w.change(path, nil)
	if w.kubelet {
		w.judge.gone(slices.Values([]string{path}))
	}
	if w.disk.lost {
		w.judge.traceless()
	}
	w.judge.vanished[path] = time.Time{}
	for _, held := range w.judge.running {
		delete(held, path)
	}
}
