package first

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// local is the name of the driver that csi-volmgr brings.
const local = "local.csi-volmgr.dev"

// failure is a first failure of a newcomer.
type failure struct {
	// meets types what fails and returns what was said.
	meets func(p *place) string
	// cause is a part of what must be said.
	cause string
	// next is a regular expression whose group is the one next command.
	next string
	// types types the command, and sees that what had failed works.
	types func(p *place, command string)
}

var failures = map[string]failure{
	"no driver": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			p.apply(class("local", local), claim("local"), pod)
			return p.says("csi-volmgr explain pvc data", "you can")
		},
		cause: "driver " + local + " is not registered", next: `you can .*: (csi-volmgr run .*)`,
		types: func(p *place, command string) { p.daemon.Stop(); p.begins(command); p.mounts() },
	},
	"driver not up": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			p.startDriver()
			p.DriverUp("own.example.com")
			p.driver.Kill()
			p.says("csi-volmgr explain driver own.example.com", "not registered")
			p.apply(class("own", "own.example.com"), claim("own"), pod)
			return p.says("csi-volmgr explain pvc data", "you can")
		},
		cause: "driver own.example.com is not registered", next: `you can .*: (csi-volmgr explain driver .*)`,
		types: func(p *place, command string) {
			if said := p.does(command); !strings.Contains(said, "start the driver") {
				p.T.Errorf("%s:\n%s", command, said)
			}
			p.startDriver()
			p.mounts()
		},
	},
	"class not found": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run --local-driver")
			p.apply(class("local", local), claim("fast"), pod)
			return p.says("csi-volmgr explain pvc data", "you can")
		},
		cause: "StorageClass fast not found; there are: local", next: `you can .*: (csi-volmgr apply -f FILE)`,
		types: func(p *place, command string) {
			p.does(strings.Replace(command, "FILE", p.write("claim.yaml", claim("local"), 0o644), 1))
			p.mounts()
		},
	},
	"no default class": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run --local-driver")
			p.apply(claim(""), pod)
			return p.says("csi-volmgr explain pvc data", "you can")
		},
		cause: "no default", next: `you can .*: (echo .* \| csi-volmgr apply -f -)`,
		types: func(p *place, command string) { p.does(command); p.mounts() },
	},
	"no root": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			return p.fails(nobody + "csi-volmgr get drivers")
		},
		cause: "permission denied", next: `: (sudo csi-volmgr .*)`,
		types: func(p *place, command string) { p.does(command) },
	},
	"no root for the daemon": {
		meets: func(p *place) string { return p.fails(nobody + "csi-volmgr run --local-driver") },
		cause: "csi-volmgr run needs root", next: `: (sudo csi-volmgr .*run .*)`,
		types: func(p *place, command string) { p.begins(command) },
	},
	"port taken": {
		meets: func(p *place) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			p.must(err)
			p.T.Cleanup(func() { l.Close() })
			said := p.fails("csi-volmgr run --http-address=" + l.Addr().String())
			if who := fmt.Sprintf("(process %d, ", os.Getpid()); !strings.Contains(said, who) {
				p.T.Errorf("no %q in: %s", who, said)
			}
			return said
		},
		cause: "address already in use", next: `start this with (--http-address=off)`,
		types: func(p *place, flag string) { p.begins("csi-volmgr run " + flag) },
	},
	"socket missing": {
		meets: func(p *place) string { return p.fails("csi-volmgr get pods") },
		cause: "no daemon answers at ", next: `start it with: (sudo csi-volmgr run \S+)`,
		types: func(p *place, command string) { p.begins(command); p.does("csi-volmgr get pods") },
	},
	"two daemons, one root directory": twoDaemons("--state-dir=DIR/other --socket=DIR/run/t", "another csi-volmgr uses it"),
	"two daemons, one journal":        twoDaemons("--root-dir=DIR/other --registration-dir=DIR/other/r --socket=DIR/run/t", "another daemon holds the journal"),
	"two daemons, one socket":         twoDaemons("--root-dir=DIR/other --registration-dir=DIR/other/r --state-dir=DIR/more", "another daemon holds "),
	"full disk":                       fullDisk(),
	"missing program": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			p.apply(strings.Replace(scratch, "emptyDir: {}", "nfs: {server: filer.example.com, path: /x}", 1))
			return p.says("csi-volmgr explain pod web", "you can")
		},
		cause: "mount.nfs is not installed", next: `you can .*: (csi-volmgr doctor) says what to install`,
		types: func(p *place, command string) {
			said := p.next(p.types(command).Stdout, `program.mount.nfs .* install (\S+) \(Debian`)
			if said != "nfs-common" {
				p.T.Errorf("to be installed: %s", said)
			}
			// What the package brings, for a server that this machine does not have.
			const helper = "#!/bin/sh\nexec mount -t tmpfs filer \"$2\"\n"
			p.must(os.WriteFile("/sbin/mount.nfs", []byte(helper), 0o755))
			p.mounts()
		},
	},
	"missing program, and the pod goes": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			p.apply(strings.Replace(scratch, "emptyDir: {}", "iscsi: {targetPortal: 127.0.0.1, iqn: iqn.2001-04.com.example:x, lun: 0}", 1))
			return p.says("csi-volmgr explain pod web", "you can")
		},
		cause: "iscsiadm is not installed", next: `you can .*: (csi-volmgr doctor) says what to install`,
		types: func(p *place, command string) {
			p.next(p.types(command).Stdout, `program.iscsiadm .* install (\S+) \(Debian`)
			p.does("csi-volmgr delete pod web")
			p.does("csi-volmgr wait pod web --for=unmounted --timeout=2m")
			if left := p.types("csi-volmgr get volumes"); !strings.Contains(left.Stdout+left.Stderr, "No volume found") {
				p.T.Errorf("after the pod is deleted:\n%s", left.Stdout)
			}
		},
	},
	"wrong namespace":         wrongNamespace("csi-volmgr get pod web"),
	"wrong namespace, delete": wrongNamespace("csi-volmgr delete pod web"),
	"wrong namespace, mounts": wrongNamespace("csi-volmgr get mounts --pod web"),
	"wrong namespace, who":    wrongNamespace("csi-volmgr who pod web"),
	"wrong namespace, wait":   wrongNamespace("csi-volmgr wait pod web --timeout=1ms"),
	"typo in a field":         typo("claimName: data", "claim: data"),
	"typo in a field, part":   typo("mountPath: /d", "mountPth: /d"),
	"typo in a field, kind":   typo("persistentVolumeClaim:", "pvc:"),
	"foreign word": {
		meets: func(p *place) string { p.begins("csi-volmgr run"); p.apply(scratch); return p.fails("csi-volmgr ps") },
		cause: `unknown command "ps"`, next: `: (csi-volmgr get pods)`,
		types: func(p *place, command string) { p.shows(command) },
	},
	"no -f": {
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			return p.fails("csi-volmgr apply " + p.write("web.yaml", scratch, 0o644))
		},
		cause: "-f", next: `: (csi-volmgr apply -f \S+)`,
		types: func(p *place, command string) { p.does(command); p.shows("csi-volmgr get pods") },
	},
}

// nobody runs a command as a user without rights.
const nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups "

// Each failure says its cause and one next command, which serves when it is typed.
func TestTheFirstFailuresOfANewcomer(t *testing.T) {
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			said := f.meets(p)
			if !strings.Contains(said, f.cause) {
				t.Errorf("no cause %q in:\n%s", f.cause, said)
			}
			command := p.next(said, f.next)
			t.Logf("said: %stypes: %s", said, command)
			f.types(p, command)
		})
	}
}

// shows types a command that must show the pod.
func (p *place) shows(command string) {
	p.T.Helper()
	if said := p.does(command); !strings.Contains(said, "web") {
		p.T.Errorf("%s:\n%s", command, said)
	}
}

func (p *place) startDriver() {
	p.T.Helper()
	p.driver = p.runs(fmt.Sprintf("%s local-driver --name=own.example.com --node-id=%s --root-dir=%s --state-dir=%s",
		program, harness.Name, p.Root, p.Path("own")))
}

// twoDaemons is a second daemon, with these flags; another daemon has what is left of the first one's.
func twoDaemons(flags, cause string) failure {
	second := func(p *place) string { return "csi-volmgr run " + strings.ReplaceAll(flags, "DIR", p.Dir) }
	return failure{
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			said := p.fails(second(p))
			if pid := fmt.Sprintf("(process %d)", p.daemon.Pid()); !strings.Contains(said, pid) {
				p.T.Errorf("no %q in: %s", pid, said)
			}
			return said
		},
		cause: cause, next: `stop it with: (kill \d+)`,
		types: func(p *place, command string) {
			p.does(command)
			<-p.daemon.Done()
			other := p.runs(second(p))
			p.Eventually("the second daemon to start", func() bool {
				log, err := os.ReadFile(other.Log())
				return err == nil && strings.Contains(string(log), "daemon starts")
			})
			other.Stop()
		},
	}
}

// wrongNamespace is a verb on a pod that is in another namespace than the one that is given.
func wrongNamespace(verb string) failure {
	return failure{
		meets: func(p *place) string {
			p.begins("csi-volmgr run")
			p.apply(scratch)
			p.mounts()
			return p.fails(verb + " -n prod")
		},
		cause: "there is one in namespace default", next: `repeat with (-n default)`,
		types: func(p *place, flag string) { p.does(verb + " " + flag) },
	}
}

// typo is a manifest with a word that is wrong.
func typo(right, wrong string) failure {
	field := func(s string) string { return strings.Split(s, ":")[0] }
	return failure{
		meets: func(p *place) string {
			p.begins("csi-volmgr run --local-driver")
			return p.fails("csi-volmgr apply -f " + p.write("web.yaml", strings.Replace(pod, right, wrong, 1), 0o644))
		},
		cause: field(wrong) + ": unknown field", next: `did you mean (\w+)\?`,
		types: func(p *place, word string) {
			p.does(fmt.Sprintf("sed -i 's/%s:/%s:/' %s && csi-volmgr apply -f %[3]s", field(wrong), word, p.Path("web.yaml")))
			p.apply(class("local", local), claim("local"))
			p.mounts()
		},
	}
}
