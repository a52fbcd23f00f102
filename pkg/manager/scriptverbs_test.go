package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// driver up [attach] [offline] [named NAME] [builtin] [without stage], driver down REASON
func (p *player) driver(args []string) {
	name, args := take(args, "named")
	if name == "" {
		name = "d"
	}
	if args[0] == "down" {
		p.l.DriverDown(state.DriverName(name), strings.Join(args[1:], " "))
		return
	}
	attach, args := flag(args, "attach")
	builtin, args := flag(args, "builtin")
	offline, args := flag(args, "offline")
	without, args := take(args, "without")
	if len(args) != 1 || args[0] != "up" {
		p.fatalf("want driver up [attach] [builtin] [without stage] [named NAME]")
	}
	p.l.DriverUp(DriverInfo{
		Name: state.DriverName(name), Stage: without != "stage", Attach: attach, Expand: !builtin, Builtin: builtin, MountsTarget: true, Offline: offline,
	}, p.h)
}

// pod POD wants VOLUME [options], ... ; pod POD ended wants ... ; pod POD leaves
func (p *player) pod(args []string) {
	if len(args) < 2 {
		p.fatalf("want pod POD wants VOLUME, or pod POD leaves")
	}
	name, args := args[0], args[1:]
	ended, args := flag(args, "ended")
	switch args[0] {
	case "leaves":
		p.l.RemovePod(state.PodUID(name))
	case "wants":
		w := podWant(name)
		w.Stopped = ended
		for _, volume := range list(args[1:]) {
			w.Volumes = append(w.Volumes, p.want(name, volume))
		}
		p.l.SetPod(w)
	default:
		p.fatalf("a pod wants or leaves")
	}
}

// want returns one volume of a pod's wish; words are its name and options.
func (p *player) want(pod string, words []string) state.VolumeWant {
	w := wantOf(pod, words[0])
	for _, option := range words[1:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "readonly":
			w.Mount.ReadOnly = true
		case "block":
			w.Spec.Mode = state.Block
		case "alone":
			w.Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
		case "inline":
			w.Spec.Ephemeral = true
		case "own": // a built-in kind that each pod has for itself
			w.ID, w.Spec.Builtin = state.PodVolumeID("d", state.PodUID(pod), words[0]), true
		case "by":
			w.ID, w.Spec.Driver, w.Spec.Builtin = state.SharedID(state.DriverName(value), words[0]), state.DriverName(value), true
			w.Spec.StagePath = "/stage/" + value
		case "revision":
			w.Revision = value
		case "size":
			w.SizeBytes = int64(p.number(value))
		case "have":
			w.HaveBytes = int64(p.number(value))
		case "held":
			w.Hold = value
		case "problem":
			w = state.VolumeWant{Names: w.Names, Problem: value}
		case "server":
			w.Spec.Context = map[string]string{"server": value}
		case "attachment":
			w.Spec.Attachment = value
		case "device":
			w.Spec.PublishContext = map[string]string{"device": value}
		default:
			p.fatalf("%q is not an option of a volume", option)
		}
	}
	return w
}

func (p *player) wait(args []string) {
	time.Sleep(p.duration(args[0]))
	synctest.Wait()
}

// mounted POD... [within 1s]
func (p *player) mounted(args []string) { p.await(args, p.l.WaitForAttachAndMount) }

// unmounted POD... [within 1s]
func (p *player) unmounted(args []string) { p.await(args, p.l.WaitForUnmount) }

func (p *player) await(args []string, wait func(context.Context, state.PodUID) error) {
	within, pods := take(args, "within")
	limit := time.Hour
	if within != "" {
		limit = p.duration(within)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	for _, pod := range pods {
		if err := wait(ctx, state.PodUID(pod)); err != nil {
			p.fatalf("%v", err)
		}
	}
}

// rule adds a rule for calls: CALL [VOLUME [POD]] [times N] ...
func (p *player) rule(args []string, f fault) *rule {
	times, args := take(args, "times")
	r := &rule{fault: f, left: -1}
	if times != "" {
		r.left = p.number(times)
	}
	if r.call = strings.Join(args, " "); r.call == "any" {
		r.call = ""
	}
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// fail CALL [VOLUME [POD]] with CODE [times N] [after its effect] [takes 1s] [unmounting]
func (p *player) fail(args []string) {
	code, args := take(args, "with")
	takes, args := take(args, "takes")
	unmounts, args := flag(args, "unmounting")
	f := fault{}
	if n := len(args); n > 3 && slices.Equal(args[n-3:], []string{"after", "its", "effect"}) {
		f.effect, args = true, args[:n-3]
	}
	call := "Node" + args[0] + "Volume"
	f.err = &state.CallError{Outcome: state.CodeOf(call, code).Outcome, Call: call, Code: code, Err: errors.New("told to")}
	if takes != "" {
		f.takes = p.duration(takes)
	}
	p.rule(args, f).unmounts = unmounts
}

// lie CALL ...: the driver answers OK and does nothing.
func (p *player) lie(args []string) { p.rule(args, fault{lie: true}) }

// slow CALL ... by 1m
func (p *player) slow(args []string) {
	by, args := take(args, "by")
	p.rule(args, fault{takes: p.duration(by)})
}

// hang CALL ...: the call does not return until the manager cancels it.
func (p *player) hang(args []string) { p.rule(args, fault{hangs: true}) }

// heal ends all faults.
func (p *player) heal([]string) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.rules = nil
}

// calls [in any order] CALL, CALL: exactly these calls were made since the last such line; or
// calls none.
func (p *player) calls(args []string) {
	var want []string
	unordered := len(args) > 3 && slices.Equal(args[:3], []string{"in", "any", "order"})
	if unordered {
		args = args[3:]
	}
	for _, words := range list(args) {
		want = append(want, strings.Join(words, " "))
	}
	got := p.fresh()
	if unordered {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		p.fatalf("there were %s", strings.Join(got, ", "))
	}
}

// fresh returns the calls since the last line that checked calls.
func (p *player) fresh() (calls []string) {
	synctest.Wait()
	all := p.h.calls()
	for _, call := range all[p.seen:] {
		calls = append(calls, short(call))
	}
	p.seen = len(all)
	return calls
}

// late POD within 5s NAMES...: a wait fails, and its error has these texts in this order.
func (p *player) late(args []string) {
	within, words := take(args, "within")
	ctx, cancel := context.WithTimeoutCause(p.t.Context(), p.duration(within), errors.New(within+" are over"))
	defer cancel()
	err := p.l.WaitForAttachAndMount(ctx, state.PodUID(words[0]))
	if we, ok := errors.AsType[*WaitError](err); !ok || we.Pod.Name != words[0] {
		p.fatalf("%v", err)
	}
	rest := err.Error()
	for _, word := range words[1:] {
		_, after, ok := strings.Cut(rest, word)
		if !ok {
			p.fatalf("no %q in the rest %q of %v", word, rest, err)
		}
		rest = after
	}
	p.said = err.Error()
}

// unsaid WORDS...: the error of the last wait that failed has none of these texts.
func (p *player) unsaid(args []string) {
	for _, word := range args {
		if strings.Contains(p.said, word) {
			p.fatalf("%q is in %q", word, p.said)
		}
	}
}

// count CALL is N, count CALL at-most N, count CALL at-least N
func (p *player) count(args []string) {
	n, got := len(args), 0
	call := strings.Join(args[:n-2], " ")
	for _, c := range p.fresh() {
		if c == call || strings.HasPrefix(c, call+" ") {
			got++
		}
	}
	how, want := args[n-2], p.number(args[n-1])
	if got > want && how != "at-least" || got < want && how != "at-most" {
		p.fatalf("there were %d", got)
	}
}

// begin starts a manager: [sources NAME+NAME] [handshake]
func (p *player) begin(args []string) {
	var opts []option
	names, args := take(args, "sources")
	if names != "" {
		opts = append(opts, sources(strings.Split(names, "+")...))
	}
	if handshake, _ := flag(args, "handshake"); handshake {
		opts = append(opts, func(c *Config) { c.InUseHandshake = true })
	}
	opts = append(opts, func(c *Config) {
		c.OnExpanded = func(v state.Volume) { p.grown.Store(v.ID, v.SizeBytes) }
	})
	p.l = live(p.t, p.h, p.d, append(opts, boot(fmt.Sprint("boot-", p.boots)))...)
}

// stop stops the daemon. The next lines change the host while no daemon runs.
func (p *player) stop([]string) { _ = p.l.stop() }

// start starts the daemon for the first time, or after stop.
func (p *player) start(args []string) { p.begin(args) }

// restart [sources file+api]: the daemon is stopped and started.
func (p *player) restart(args []string) {
	_ = p.l.stop()
	p.begin(args)
}

// crash [sources file+api]: the daemon is started again without having been stopped.
func (p *player) crash(args []string) { p.begin(args) }

// reboot [with mounts] [sources file+api]: the host loses its mounts and gets another boot ID;
// with mounts it keeps them.
func (p *player) reboot(args []string) {
	_ = p.l.stop()
	what, args := take(args, "with")
	if p.boots++; what != "mounts" {
		p.h.mu.Lock()
		clear(p.h.published)
		clear(p.h.staged)
		p.h.mu.Unlock()
	}
	p.begin(args)
}

func (p *player) synced(args []string) { p.l.SourceSynced(args[0]) }

// vanish PATH...: mounts vanish without a call.
func (p *player) vanish(args []string) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	for _, path := range args {
		delete(p.h.published, path)
		delete(p.h.staged, path)
	}
}

// look: the manager gets the mount table.
func (p *player) look([]string) {
	p.h.mu.Lock()
	var paths []string
	for path := range p.h.published {
		paths = append(paths, path)
	}
	for path := range p.h.staged {
		paths = append(paths, path)
	}
	p.h.mu.Unlock()
	p.l.MountsSeen(oneLayer(paths...))
}

// journal fails, journal heals
func (p *player) journal(args []string) {
	p.d.fail(map[string]int{"fails": 0, "heals": -1}[args[0]])
}

func (p *player) retry(args []string) { p.l.RetryNow(state.VolumeID("d^" + args[0])) }

// reported VOLUME...: the Node's status reports these volumes as in use.
func (p *player) reported(args []string) {
	var ids []state.VolumeID
	for _, v := range args {
		ids = append(ids, state.VolumeID("d^"+v))
	}
	p.l.MarkVolumesAsReportedInUse(ids)
}
