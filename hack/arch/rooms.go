package arch

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/csi-volmgr/csi-volmgr"

// room is a directory and everything below it that is in no other room.
type room struct {
	dir string
	// may lists the rooms that it may import in addition to itself; "*" means all.
	may []string
	// pure rooms decide and describe: no clock, no host, no concurrency, no logs.
	pure bool
	// timeless rooms do not read the clock.
	timeless bool
	// open rooms hold one rule about texts or paths, and every other room may import them.
	open bool
}

// rooms is the third column of the table in ARCHITECTURE.md. A package in none of them
// is an error: add its room on purpose, here and there.
var rooms = []room{
	{dir: "pkg/state", timeless: true},
	{dir: "internal/journal", may: []string{"pkg/state", "pkg/filelock"}, timeless: true},
	{dir: "pkg/kind", may: []string{"pkg/state"}, pure: true, timeless: true},
	{dir: "pkg/clip", pure: true, timeless: true, open: true},
	{dir: "pkg/pathname", pure: true, timeless: true, open: true},
	{dir: "pkg/isolate"},
	{dir: "pkg/mount", may: []string{"pkg/diskfs", "pkg/isolate"}},
	{dir: "pkg/translate", pure: true, timeless: true},
	{dir: "pkg/content", pure: true, timeless: true},
	{dir: "pkg/diskfs", pure: true, timeless: true},
	{dir: "pkg/manager/plan", may: []string{"pkg/state"}, pure: true, timeless: true},
	{dir: "pkg/manager", may: []string{"pkg/state", "pkg/manager/plan"}},
	{dir: "pkg/resolve", may: []string{"pkg/state", "pkg/kind", "pkg/translate", "pkg/content", "pkg/diskfs"}, pure: true, timeless: true},
	{dir: "pkg/source", may: []string{"pkg/state", "pkg/resolve", "pkg/translate"}},
	{dir: "pkg/source/kube", may: []string{"pkg/state", "pkg/resolve", "pkg/source", "pkg/csiclient", "pkg/token", "pkg/kubeclient", "pkg/outage"}},
	{dir: "pkg/freeze", may: []string{"pkg/state", "pkg/mount", "pkg/isolate"}},
	{dir: "pkg/schedule", may: []string{"pkg/state"}},
	{dir: "pkg/binding", may: []string{"pkg/state", "pkg/resolve", "pkg/source"}},
	{dir: "pkg/source/made", may: []string{"pkg/state", "pkg/resolve", "pkg/source", "pkg/translate", "pkg/controller"}},
	{dir: "pkg/source/named", may: []string{"pkg/state", "pkg/resolve", "pkg/source"}},
	{dir: "pkg/kubeclient"},
	{dir: "pkg/outage", timeless: true},
	{dir: "pkg/report", may: []string{"pkg/state", "pkg/kubeclient", "pkg/outage"}},
	{dir: "pkg/registration", may: []string{"pkg/state", "pkg/unixsocket"}},
	{dir: "pkg/stats", may: []string{"pkg/state"}},
	{dir: "pkg/podcert", may: []string{"pkg/state", "pkg/kubeclient"}},
	{dir: "pkg/token", may: []string{"pkg/state", "pkg/csiclient"}},
	{dir: "pkg/csiclient", may: []string{"pkg/state", "pkg/unixsocket"}},
	{dir: "pkg/intree", may: []string{"pkg/state", "pkg/kind", "pkg/mount", "pkg/content", "pkg/diskfs", "pkg/token", "pkg/isolate", "pkg/intree/keylock", "pkg/intree/program"}},
	{dir: "pkg/intree/keylock"},
	{dir: "pkg/intree/program", may: []string{"pkg/intree/keylock"}},
	{dir: "pkg/intree/drivertest", may: []string{"pkg/state", "internal/journal", "pkg/mount", "pkg/content", "pkg/intree", "pkg/intree/program", "pkg/manager"}},
	{dir: "pkg/controller", may: []string{"pkg/state", "pkg/csiclient"}},
	{dir: "pkg/localdriver", may: []string{"pkg/mount", "pkg/unixsocket", "pkg/filelock"}},
	{dir: "pkg/metrics", may: []string{"pkg/state", "pkg/kind", "pkg/manager", "pkg/manager/plan"}},
	{dir: "pkg/systemd"},
	{dir: "pkg/docker", may: []string{"pkg/source/named", "pkg/unixsocket"}},
	{dir: "pkg/unixsocket", may: []string{"pkg/filelock"}},
	{dir: "pkg/filelock"},
	{dir: "pkg/cri", may: []string{"pkg/state"}},
	{dir: "pkg/tracing", may: []string{"pkg/state", "pkg/manager", "pkg/manager/plan"}},
	{dir: "pkg/recorder", may: []string{"pkg/state", "pkg/manager", "pkg/manager/plan"}},
	{dir: "pkg/audit"},
	{dir: "pkg/bundle"},
	{dir: "pkg/holders", may: []string{"pkg/mount"}},
	{dir: "pkg/leftover", may: []string{"pkg/state", "pkg/mount"}},
	{dir: "pkg/uninstall", may: []string{"pkg/state", "internal/journal", "pkg/mount", "pkg/audit", "pkg/leftover", "pkg/filelock"}},
	{dir: "pkg/containers", may: []string{"pkg/state", "pkg/kind", "pkg/mount", "pkg/intree", "pkg/manager", "pkg/resolve", "pkg/server", "pkg/source", "pkg/handover/disk"}},
	{dir: "pkg/events", may: []string{"pkg/state", "pkg/manager", "pkg/manager/plan", "pkg/report", "pkg/resolve", "pkg/server", "pkg/source", "pkg/source/kube", "pkg/stats"}},
	{dir: "pkg/fsgroup", may: []string{"pkg/state", "pkg/isolate", "pkg/intree", "pkg/manager"}},
	{dir: "pkg/away", may: []string{"pkg/state", "pkg/mount", "pkg/isolate", "pkg/freeze", "pkg/intree", "pkg/intree/keylock", "pkg/intree/program", "pkg/manager", "pkg/fsgroup", "pkg/content", "pkg/diskfs", "pkg/outage"}},
	{dir: "pkg/health", may: []string{"pkg/state", "pkg/kind", "pkg/manager", "pkg/manager/plan", "pkg/controller", "pkg/csiclient", "pkg/intree", "pkg/isolate", "pkg/stats", "pkg/watch"}},
	{dir: "pkg/operate", may: []string{"pkg/state", "pkg/manager", "pkg/manager/plan", "pkg/mount", "pkg/audit", "pkg/holders", "pkg/leftover", "pkg/localdriver", "pkg/server", "pkg/controller", "pkg/registration", "pkg/isolate", "pkg/fsgroup", "pkg/resolve", "pkg/source", "pkg/source/made", "pkg/source/named", "pkg/binding", "pkg/schedule", "pkg/source/manifest"}},
	{dir: "pkg/watch", may: []string{"pkg/state", "pkg/mount", "pkg/isolate", "pkg/leftover", "pkg/manager/plan"}},
	{dir: "pkg/drivers", may: []string{"pkg/state", "pkg/manager", "pkg/manager/plan", "pkg/csiclient", "pkg/registration", "pkg/controller", "pkg/report"}},
	{dir: "pkg/cluster", may: []string{"pkg/state", "internal/journal", "pkg/manager", "pkg/events", "pkg/kind", "pkg/kubeclient", "pkg/outage", "pkg/podcert", "pkg/report", "pkg/resolve", "pkg/server", "pkg/source", "pkg/source/kube", "pkg/stats", "pkg/translate"}},
	{dir: "pkg/selinux", may: []string{"pkg/resolve"}},
	{dir: "pkg/builtins", may: []string{"pkg/state", "pkg/kind", "pkg/mount", "pkg/isolate", "pkg/intree", "pkg/intree/program", "pkg/away", "pkg/manager", "pkg/resolve", "pkg/source"}},
	{dir: "pkg/doctor", may: []string{"pkg/state", "pkg/mount", "pkg/localdriver", "pkg/unixsocket"}},
	{dir: "pkg/handover", may: []string{"pkg/state", "pkg/kind"}, pure: true, timeless: true},
	{dir: "pkg/handover/disk", may: []string{"pkg/state", "pkg/mount", "pkg/handover", "pkg/filelock"}},
	{dir: "pkg/handover/takeover", may: []string{"pkg/state", "internal/journal", "pkg/mount", "pkg/handover", "pkg/handover/disk", "pkg/audit", "pkg/csiclient", "pkg/intree", "pkg/manager", "pkg/registration"}},
	{dir: "pkg/server", may: []string{"pkg/state", "pkg/stats", "pkg/manager", "pkg/manager/plan", "pkg/audit", "pkg/holders", "pkg/leftover", "pkg/unixsocket"}},
	{dir: "pkg/node", may: []string{"*"}},
	{dir: "cmd/csi-volmgr", may: []string{"*"}},
	{dir: "examples", may: []string{"pkg/node", "pkg/source"}},
	{dir: "examples/agent", may: []string{"pkg/builtins", "pkg/doctor", "pkg/node", "pkg/server", "pkg/state"}},
	{dir: "test", may: []string{"*"}},
	{dir: "hack", may: []string{"*"}},
}

// impure are the imports that a pure room must not have.
var impure = []string{
	"context", "io/fs", "io/ioutil", "log", "log/slog", "net", "net/http", "os", "os/exec",
	"path/filepath", "sync", "sync/atomic", "syscall", "golang.org/x/sys/unix", "k8s.io/client-go",
}

// forkers are the rooms whose code may start other programs, such as mkfs.
// All other rooms call the kernel themselves.
var forkers = []string{"pkg/isolate", "pkg/localdriver", "pkg/intree/program", "pkg/intree/drivertest", "cmd/csi-volmgr", "examples", "examples/agent", "test", "hack"}

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
	for _, path := range imports {
		ours, local := strings.CutPrefix(path, Module+"/")
		switch {
		case local && !r.mayImport(ours):
			problems = append(problems, fmt.Sprintf("%s imports %s: its room may import %q; declare an interface in %s and let pkg/node or cmd wire it", dir, ours, r.may, dir))
		case r.pure && slices.ContainsFunc(impure, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") && p != "io/fs" }):
			problems = append(problems, fmt.Sprintf("%s is pure and imports %s: take the values as parameters", dir, path))
		case path == "os/exec" && !slices.Contains(forkers, r.dir):
			problems = append(problems, fmt.Sprintf("%s imports os/exec: only %q start programs", dir, forkers))
		}
	}
	return problems
}

func (r room) mayImport(dir string) bool {
	other, ok := roomOf(dir)
	if !ok || other.dir == "cmd/csi-volmgr" || other.dir == "hack" {
		return other.dir == r.dir
	}
	if other.dir == "test" {
		return r.dir == "test" || r.dir == "hack"
	}
	return other.dir == r.dir || other.open || slices.Contains(r.may, "*") || slices.Contains(r.may, other.dir)
}
