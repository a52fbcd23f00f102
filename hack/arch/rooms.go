package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/csi-volmgr/csi-volmgr"

// house is a directory. Its packages import each other, as its rooms allow, and houses of
// lower floors; what a house imports is thus below it in the first picture of
// ARCHITECTURE.md.
type house struct {
	dir   string
	floor int
}

var houses = []house{
	{"pkg/state", 0},
	{"pkg/translate", 0},
	{"pkg/manager", 1},
	{"internal/host", 2},
	{"internal/journal", 3},
	{"internal/localdriver", 3},
	{"internal/wants", 3},
	{"pkg/registration", 3},
	{"internal/kinds", 4},
	{"pkg/csiclient", 4},
	{"internal/provision", 5},
	{"internal/serve", 6},
	{"internal/cluster", 7},
	{"internal/tools", 7},
	{"internal/doors", 8},
	{"internal/wire", 9},
	{"pkg/node", 10},
	{"pkg/client", 10},
	{"pkg/intree", 10},
	{"cmd", 11},
	{"examples", 11},
	{"test", 12},
	{"hack", 13},
}

// houseOf returns the house of the package in dir.
func houseOf(dir string) (best house, ok bool) {
	for _, h := range houses {
		if (dir == h.dir || strings.HasPrefix(dir, h.dir+"/")) && len(h.dir) > len(best.dir) {
			best = h
		}
	}
	return best, best.dir != ""
}

// room is a directory of a house and everything below it that is in no other room.
type room struct {
	dir string
	// may lists the rooms of its house that it may import in addition to itself, by their
	// last element; "*" means all.
	may []string
	// pure rooms decide and describe: no clock, no host, no concurrency, no logs.
	pure bool
	// timeless rooms do not read the clock.
	timeless bool
}

// rooms is the second column of the tables in ARCHITECTURE.md. A package in none of them
// is an error: add its room on purpose, here and there.
var rooms = []room{
	{dir: "pkg/state", timeless: true},
	{dir: "pkg/translate", pure: true, timeless: true},
	{dir: "pkg/manager", may: []string{"plan"}},
	{dir: "pkg/manager/plan", pure: true, timeless: true},
	{dir: "pkg/registration"},
	{dir: "pkg/csiclient"},
	{dir: "pkg/node"},
	{dir: "pkg/client"},
	{dir: "pkg/intree"},

	{dir: "internal/host/beneath"},
	{dir: "internal/host/clip", pure: true, timeless: true},
	{dir: "internal/host/cri"},
	{dir: "internal/host/diskfs", pure: true, timeless: true},
	{dir: "internal/host/filelock"},
	{dir: "internal/host/freeze", may: []string{"isolate", "mount", "pathname"}},
	{dir: "internal/host/holders", may: []string{"mount", "pathname"}},
	{dir: "internal/host/isolate"},
	{dir: "internal/host/leftover", may: []string{"beneath", "mount", "pathname"}},
	{dir: "internal/host/mount", may: []string{"beneath", "diskfs", "isolate", "pathname"}},
	{dir: "internal/host/outage", timeless: true},
	{dir: "internal/host/pathname", pure: true, timeless: true},
	{dir: "internal/host/systemd"},
	{dir: "internal/host/unixsocket", may: []string{"filelock"}},
	{dir: "internal/host/watch", may: []string{"isolate", "leftover", "mount"}},

	{dir: "internal/journal", timeless: true},
	{dir: "internal/localdriver"},

	{dir: "internal/wants/api", may: []string{"manifest", "resolve", "source"}},
	{dir: "internal/wants/content", pure: true, timeless: true},
	{dir: "internal/wants/ephemeral", may: []string{"resolve", "source"}},
	{dir: "internal/wants/file", may: []string{"manifest", "resolve", "source"}},
	{dir: "internal/wants/kind", pure: true, timeless: true},
	{dir: "internal/wants/manifest", may: []string{"resolve"}},
	{dir: "internal/wants/named", may: []string{"manifest", "resolve", "source"}},
	{dir: "internal/wants/resolve", may: []string{"content", "kind"}, pure: true, timeless: true},
	{dir: "internal/wants/selinux", may: []string{"resolve"}},
	{dir: "internal/wants/source", may: []string{"resolve"}},

	{dir: "internal/kinds", may: []string{"keylock", "program", "quota"}},
	{dir: "internal/kinds/away", may: []string{"kinds", "fsgroup", "keylock", "program"}},
	{dir: "internal/kinds/builtins", may: []string{"kinds", "away", "program", "quota"}},
	{dir: "internal/kinds/fsgroup", may: []string{"kinds"}},
	{dir: "internal/kinds/keylock"},
	{dir: "internal/kinds/program", may: []string{"keylock"}},
	{dir: "internal/kinds/quota"},

	{dir: "internal/provision/binding"},
	{dir: "internal/provision/controller"},
	{dir: "internal/provision/made", may: []string{"controller"}},
	{dir: "internal/provision/schedule"},
	{dir: "internal/provision/storageid", may: []string{"controller"}},

	{dir: "internal/serve/audit"},
	{dir: "internal/serve/client", may: []string{"server", "stats"}},
	{dir: "internal/serve/health", may: []string{"stats"}},
	{dir: "internal/serve/metrics"},
	{dir: "internal/serve/operate", may: []string{"audit", "server"}},
	{dir: "internal/serve/recorder"},
	{dir: "internal/serve/server", may: []string{"audit", "stats"}},
	{dir: "internal/serve/stats"},
	{dir: "internal/serve/tracing"},

	{dir: "internal/cluster/cluster", may: []string{"events", "kube", "kubeclient", "podcert", "report"}},
	{dir: "internal/cluster/drivers", may: []string{"report"}},
	{dir: "internal/cluster/events", may: []string{"report"}},
	{dir: "internal/cluster/kube", may: []string{"kubeclient", "token"}},
	{dir: "internal/cluster/kubeclient"},
	{dir: "internal/cluster/podcert", may: []string{"kubeclient"}},
	{dir: "internal/cluster/report", may: []string{"kubeclient"}},
	{dir: "internal/cluster/token"},

	{dir: "internal/tools/bundle"},
	{dir: "internal/tools/doctor"},
	{dir: "internal/tools/handover", pure: true, timeless: true},
	{dir: "internal/tools/handover/disk", may: []string{"handover"}},
	{dir: "internal/tools/handover/takeover", may: []string{"handover", "disk"}},
	{dir: "internal/tools/uninstall"},

	{dir: "internal/doors/containers"},
	{dir: "internal/doors/docker"},

	{dir: "internal/wire"},

	{dir: "cmd", may: []string{"*"}},
	{dir: "examples"},
	{dir: "test", may: []string{"*"}},
	{dir: "hack", may: []string{"*"}},
}

// impure are the imports that a pure room must not have.
var impure = []string{
	"context", "io/fs", "io/ioutil", "log", "log/slog", "net", "net/http", "os", "os/exec",
	"path/filepath", "sync", "sync/atomic", "syscall", "golang.org/x/sys/unix", "k8s.io/client-go",
}

// forkers are the rooms whose code may start other programs, such as mkfs.
// All other rooms call the kernel themselves. Programs that embed pkg/node or pkg/intree name the
// command of their helpers.
var forkers = []string{"internal/host/isolate", "internal/localdriver", "internal/kinds/program", "pkg/node", "pkg/intree", "cmd", "examples", "test", "hack"}

// roomOf returns the room that the package in dir belongs to.
func roomOf(dir string) (room, bool) {
	var best room
	for _, r := range rooms {
		if (dir == r.dir || strings.HasPrefix(dir, r.dir+"/")) && len(r.dir) > len(best.dir) {
			best = r
		}
	}
	return best, best.dir != ""
}

// importProblems lists the imports of the package in dir that it may not have.
func importProblems(dir string, imports []string) (problems []string) {
	r, ok := roomOf(dir)
	if !ok {
		return []string{dir + ": in no room; add it to hack/arch/rooms.go and to ARCHITECTURE.md, with what it may import"}
	}
	for _, imported := range imports {
		ours, local := strings.CutPrefix(imported, Module+"/")
		switch {
		case local:
			problems = append(problems, r.arrow(dir, ours)...)
		case r.pure && slices.ContainsFunc(impure, func(p string) bool { return imported == p || strings.HasPrefix(imported, p+"/") && p != "io/fs" }):
			problems = append(problems, fmt.Sprintf("%s is pure and imports %s: take the values as parameters", dir, imported))
		case imported == "go.etcd.io/bbolt" && r.dir != "internal/journal" && r.dir != "hack":
			problems = append(problems, dir+" opens a database: internal/journal does, with buckets for each room")
		case imported == "os/exec" && !slices.Contains(forkers, r.dir):
			problems = append(problems, fmt.Sprintf("%s imports os/exec: only %q start programs", dir, forkers))
		}
	}
	return problems
}

// arrow says why the package in dir, of this room, may not import another of ours.
func (r room) arrow(dir, other string) []string {
	from, _ := houseOf(dir)
	to, ok := houseOf(other)
	switch {
	case !ok || from.dir != to.dir && from.floor <= to.floor:
		return []string{fmt.Sprintf("%s imports %s: %s, on floor %d, imports houses of lower floors; declare an interface in %s and "+
			"let internal/wire or cmd wire it", dir, other, from.dir, from.floor, dir)}
	case from.dir == "examples" && strings.HasPrefix(other, "internal/"):
		return []string{fmt.Sprintf("%s imports %s: an example shows what a program of others may import", dir, other)}
	case from.dir == to.dir && !r.mayImport(other):
		return []string{fmt.Sprintf("%s imports %s: of its house its room may import %q; declare an interface in %s", dir, other, r.may, dir)}
	}
	return nil
}

func (r room) mayImport(dir string) bool {
	other, ok := roomOf(dir)
	return ok && (other.dir == r.dir || slices.Contains(r.may, "*") || slices.Contains(r.may, path.Base(other.dir)))
}
