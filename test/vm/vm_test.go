//go:build vm

package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// bootTime bounds one run of the machine, which is emulated on a loaded host.
	bootTime = 15 * time.Minute
	// statusLine is the prefix of the line in which init prints the payload's exit
	// status.
	statusLine = "VM-EXIT-STATUS: "
)

// payload is one run of the machine.
type payload struct {
	name  string
	tests []tests
	// args are additional kernel arguments.
	args string
	// installed is set if csi-volmgr is installed with its units.
	installed bool
	// shares are the tags of directories of the host that the machine may mount (9p).
	shares []string
}

// tests are the tests of one package.
type tests struct {
	pkg   string
	names []string
}

func payloads() []payload {
	return []payload{
		{name: "nfs", tests: []tests{{"./test/vm/guest", []string{
			"TestNFSOfEveryVersion", "TestDeadNFSServerHoldsUpNothingElse",
		}}}},
		{name: "same", installed: true, shares: []string{"vol", "home"}, tests: []tests{{"./test/vm/guest", []string{
			"TestWhichMountsShowOneDirectory", "TestVolumesOfAServerGoBesideItsOtherMounts",
		}}}},
		{name: "iscsi", tests: []tests{{"./test/vm/guest", []string{"TestISCSIWithCHAPAndTwoUnitsOfOneSession", "TestISCSIRawBlock", "TestDeadISCSIPortalHangsAHelperAlone", "TestLocalDeviceGrowsOnline"}}}},
		{name: "fc", tests: []tests{{"./test/vm/guest", []string{"TestFibreChannel"}}}},
		{name: "selinux", args: "security=selinux", tests: []tests{{"./test/vm/guest", []string{"TestContextMountsAndTheirConflicts", "TestISCSIVolumeHasThePodsLabel"}}}},
		{name: "quota", tests: []tests{{"./test/vm/guest", []string{"TestProjectQuotas"}}}},
		{name: "multipath", tests: []tests{{"./test/vm/guest", []string{"TestISCSIMultipath"}}}},
		{name: "systemd", args: "vm.systemd", installed: true, tests: []tests{{"./test/vm/guest", []string{
			"TestSystemdWaitsForTheDaemonToBeReady", "TestQuestionsWaitForTheDaemon", "TestServiceWaitsForItsVolume",
			"TestPluginIsThereBeforeTheEngines", "TestWatchdogReplacesTheDaemonUnderMounts", "TestWhatTheDrainUnitEmptiedIsMountedAgain",
			"TestLineOfFstab", "TestUnitsStopInOrder",
		}}}},
		{name: "hardened", args: "vm.systemd", installed: true, tests: []tests{{"./test/vm/guest", []string{"TestTheDaemonServesEachKindUnderItsUnit"}}}},
	}
}

func TestVM(t *testing.T) {
	m := machine{T: t, root: root(t)}
	m.build()
	t.Parallel()
	for _, p := range payloads() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel() // as many as there are processors: the machines mostly wait
			machine{t, m.root}.run(p)
		})
	}
}

// TestSuspendedDisk: a suspended device mapper disk puts threads in real D state.
//
// Faults: A041.
func TestSuspendedDisk(t *testing.T) {
	m := machine{T: t, root: root(t)}
	m.build()
	t.Parallel()
	m.run(payload{name: "suspended", tests: []tests{{"./test/vm/guest", []string{"TestSuspendedDiskCostsOneHelper"}}}})
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

type machine struct {
	*testing.T
	root string
}

func (m machine) out() string { return filepath.Join(m.root, "bin", "vm") }

// build makes the kernel and the root file system, unless they exist.
func (m machine) build() {
	m.Helper()
	for _, program := range []string{"qemu-system-x86_64", "cpio", "depmod", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			m.Fatalf("%v: hack/host-tools.sh --vm installs what is missing", err)
		}
	}
	m.do(m.root, nil, filepath.Join(m.root, "test/vm/build.sh"), m.out())
}

// do runs a program on the host.
func (m machine) do(dir string, stdin io.Reader, name string, args ...string) []byte {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, stdin, &stdout, &stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		m.Fatalf("%s %q: %v\n%s%s", name, args, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes()
}

// run boots the machine with p; each of p's tests must pass.
func (m machine) run(p payload) {
	initrd := m.initrd(p)
	console := m.boot(initrd, p)
	if console.status == "" {
		// The guest's kernel crashed, as 6.1 sometimes does in libfcoe, which is no
		// fault of this project.
		m.Log("the machine went without a word; once more")
		console = m.boot(initrd, p)
	}
	if console.status != "0" {
		m.Errorf("the payload returned %q, want 0", console.status)
	}
	for _, tests := range p.tests {
		for _, name := range tests.names {
			if !console.passed[name] {
				m.Errorf("%s of %s has not passed", name, tests.pkg)
			}
		}
	}
}

// initrd returns the machine's root file system with the payload in it.
func (m machine) initrd(p payload) string {
	m.Helper()
	top := m.TempDir()
	dir := filepath.Join(top, "tree", "payload")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.Fatal(err)
	}
	script := "#!/bin/sh\ncd /payload\nstatus=0\n"
	for i, tests := range p.tests {
		binary := fmt.Sprintf("%d-%s.test", i, filepath.Base(tests.pkg))
		m.do(m.root, nil, "go", "test", "-c", "-vet=off", "-tags=vm", "-o", filepath.Join(dir, binary), tests.pkg)
		script += fmt.Sprintf("./%s -test.v -test.timeout=%v -test.run '^(%s)$' || status=1\n", binary, bootTime, strings.Join(tests.names, "|"))
	}
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte(script+"exit $status\n"), 0o755); err != nil {
		m.Fatal(err)
	}
	tree := filepath.Dir(dir)
	if p.installed {
		m.install(tree)
	}
	names := m.do(tree, nil, "find", ".")
	archive := m.do(tree, bytes.NewReader(names), "cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0")
	base, err := os.ReadFile(filepath.Join(m.out(), "base.cpio"))
	if err != nil {
		m.Fatal(err)
	}
	initrd := filepath.Join(top, "initrd")
	if err := os.WriteFile(initrd, append(base, archive...), 0o600); err != nil {
		m.Fatal(err)
	}
	return initrd
}

// install installs the program below tree as a package does, and adds the strict
// driver, the example of a service and the units of the tests.
func (m machine) install(tree string) {
	m.Helper()
	m.do(m.root, nil, "make", "install", "--no-print-directory", "--silent", "BIN="+filepath.Join(m.TempDir(), "csi-volmgr"), "DESTDIR="+tree, "PREFIX=/usr")
	m.do(m.root, nil, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(tree, "usr/local/bin/csi-strict"), "./test/csi-strict/cmd")
	// In Debian /sbin is a link to /usr/sbin, in this machine it is not.
	m.do(tree, nil, "mkdir", "sbin")
	m.do(tree, nil, "ln", "-s", "/usr/sbin/mount.csi", "sbin/mount.csi")
	m.do(m.root, nil, "install", "-D", "-m", "644", "examples/systemd/web.service", filepath.Join(tree, "etc/systemd/system/web.service"))
	if err := os.CopyFS(filepath.Join(tree, "etc/systemd/system"), os.DirFS(filepath.Join(m.root, "test/vm/guest/testdata/systemd"))); err != nil {
		m.Fatal(err)
	}
}

// console is the machine's output.
type console struct {
	name   string
	status string
	passed map[string]bool // by name of the test
}

// boot runs the machine until it powers off and prints its console.
func (m machine) boot(initrd string, p payload) console {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), bootTime)
	defer cancel()
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-M", "pc", "-m", "1536", "-smp", "2",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none", "-serial", "stdio",
		"-kernel", filepath.Join(m.out(), "vmlinuz"), "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off " + p.args,
	}
	for _, tag := range p.shares {
		args = append(args, "-fsdev", "local,security_model=none,id="+tag+",path="+m.TempDir(), "-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	c := console{name: p.name, passed: map[string]bool{}}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.read(strings.TrimRight(lines.Text(), "\r"))
	}
	if err := cmd.Wait(); err != nil {
		m.Errorf("qemu: %v: %s", err, stderr.Bytes())
	}
	return c
}

func (c *console) read(line string) {
	fmt.Printf("    %-9s | %s\n", c.name, line)
	if status, ok := strings.CutPrefix(line, statusLine); ok {
		c.status = strings.TrimSpace(status)
	}
	if rest, ok := strings.CutPrefix(line, "--- PASS: "); ok {
		name, _, _ := strings.Cut(rest, " ")
		c.passed[name] = true
	}
}
