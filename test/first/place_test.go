package first

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program is the path of csi-volmgr.
var program string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(dir string) (err error) {
		if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr", harness.Raced()...); err != nil {
			return err
		}
		// Another user runs it, too.
		return errors.Join(os.Chmod(dir, 0o755), bareSbin(dir))
	}))
}

// bareSbin puts a layer over the directory of programs, from which tests may take programs and to which they may add
// some. Only this process sees the layer.
func bareSbin(dir string) error {
	layer := filepath.Join(dir, "layer")
	if err := errors.Join(os.Mkdir(layer, 0o755), unix.Mount("tmpfs", layer, "tmpfs", 0, "mode=755")); err != nil {
		return err
	}
	sbin, err := filepath.EvalSymlinks("/sbin")
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	err = errors.Join(err, os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755),
		unix.Mount("overlay", sbin, "overlay", 0, "lowerdir="+sbin+",upperdir="+upper+",workdir="+work))
	for _, name := range []string{"iscsiadm", "mount.nfs"} {
		if rm := os.Remove(filepath.Join(sbin, name)); rm != nil && !os.IsNotExist(rm) {
			err = errors.Join(err, rm)
		}
	}
	// The layer goes with the namespace; its directory must not keep the tests' directory.
	return errors.Join(err, unix.Unmount(layer, unix.MNT_DETACH))
}

// place is a machine on which a newcomer types.
type place struct {
	*harness.Node
	daemon, driver *harness.Process
	shell          string // the directory of the programs that are typed
	starts         int
}

// newPlace makes a machine without a daemon. There, csi-volmgr and sudo are what they are on a machine of its own: the
// default socket and the default directories are the test's.
func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{Node: harness.NewNode(t, program, "run/s")}
	p.shell = p.Path("bin")
	for name, text := range map[string]string{
		"csi-volmgr": fmt.Sprintf(`verb=$1; case $verb in run) shift
set -- run --root-dir=%s --state-dir=%s --node-name=%s --http-address=off --registration-dir=%s "$@";; esac
exec %s --socket=%s "$@"`, p.Root, p.Path("state"), harness.Name, p.Path("root/plugins_registry"), program, p.Socket),
		"sudo": `exec "$@"`,
	} {
		p.write(filepath.Join("bin", name), "#!/bin/sh\n"+text+"\n", 0o755)
	}
	for _, dir := range []string{p.Dir, p.shell, filepath.Dir(p.Socket)} {
		p.must(os.Chmod(dir, 0o755))
	}
	t.Cleanup(func() { p.ShowIfFailed(p.daemon, p.driver) })
	return p
}

func (p *place) must(err error) {
	p.T.Helper()
	if err != nil {
		p.T.Fatal(err)
	}
}

func (p *place) write(name, text string, mode os.FileMode) (path string) {
	p.T.Helper()
	path = p.Path(name)
	p.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)))
	return path
}

func (p *place) line(command string) []string {
	return []string{"PATH=" + p.shell + ":/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", command}
}

// types types a command line and returns what it printed.
func (p *place) types(command string) harness.Result {
	p.T.Helper()
	return harness.Run(p.T, "", "env", p.line(command)...)
}

// fails types a command line that must fail, and returns what it said.
func (p *place) fails(command string) string {
	p.T.Helper()
	r := p.types(command)
	if r.Code == 0 {
		p.T.Errorf("%s: exit code 0\n%s", command, r.Stdout)
	}
	return r.Stdout + r.Stderr
}

// does types a command line that must succeed, and returns its output.
func (p *place) does(command string) string {
	p.T.Helper()
	r := p.types(command)
	if r.Code != 0 {
		p.T.Fatalf("%s: exit code %d\n%s%s", command, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// begins types a command line that goes on, and returns it when the daemon answers.
func (p *place) begins(command string) {
	p.T.Helper()
	p.daemon = p.Answered(func() *harness.Process { return p.runs(command) })
}

// runs starts a command line that goes on until the test ends.
func (p *place) runs(command string) *harness.Process {
	p.T.Helper()
	p.starts++
	return harness.Start(p.T, p.Path(fmt.Sprintf("%d.log", p.starts)), exec.Command("env", p.line("exec "+command)...))
}

// says repeats a question until the answer has the words, and returns it: what it asks about takes its time.
func (p *place) says(question, words string) (answer string) {
	p.T.Helper()
	p.Eventually(question+" to say "+words, func() bool {
		r := p.types(question)
		answer = r.Stdout + r.Stderr
		return strings.Contains(answer, words)
	})
	return answer
}

// apply writes the documents to a file and types its application.
func (p *place) apply(docs ...string) {
	p.T.Helper()
	p.does("csi-volmgr apply -f " + p.write("a.yaml", strings.Join(docs, "---\n"), 0o644))
}

// mounts waits for the pod.
func (p *place) mounts() {
	p.T.Helper()
	p.does("csi-volmgr wait pod web --for=mounted --timeout=2m")
}

// next returns the one command that a text names.
func (p *place) next(said, pattern string) string {
	p.T.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(said, -1)
	if len(found) == 0 {
		p.T.Fatalf("no next command %q in:\n%s", pattern, said)
	}
	for _, f := range found {
		if f[1] != found[0][1] {
			p.T.Errorf("more than one next command: %q and %q in:\n%s", found[0][1], f[1], said)
		}
	}
	return found[0][1]
}

const (
	pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: none, volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
`
	scratch = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: none, volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, emptyDir: {}}]
`
)

// claim returns a claim with a class; "" leaves the class to the default.
func claim(class string) string {
	if class != "" {
		class = "storageClassName: " + class + ", "
	}
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {" + class +
		"accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}\n"
}

// class returns a class of a driver, which makes directories: they need no loop device.
func class(name, driver string) string {
	return "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: " + name + "}\nprovisioner: " + driver + "\n"
}
