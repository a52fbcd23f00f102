package csisanity

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
)

// The suite can run only once in a process (ginkgo), so each configuration has its own:
// this test binary again, with these variables in its environment.
const (
	envDir      = "CSI_SANITY_DIR"      // the child's directory
	envEndpoint = "CSI_SANITY_ENDPOINT" // the driver to test; "" for our own
	envAccess   = "CSI_SANITY_ACCESS"
	envSize     = "CSI_SANITY_SIZE"
	envExpand   = "CSI_SANITY_EXPAND"
	envParams   = "CSI_SANITY_PARAMETERS"
	envMutable  = "CSI_SANITY_MUTABLE_PARAMETERS"
)

// setup is one run of the suite.
type setup struct {
	endpoint string
	access   string
	size     string
	expand   string
	params   string
	mutable  string
	// leave lists the specs that the suite skips.
	leave string
}

// justified are the reasons to skip that our driver's capabilities justify: it needs no attachment to its own node, and
// it lacks health in lists and on nodes, and topology of snapshots.
var justified = []string{
	"ControllerPublishVolume not supported",
	"Controller Publish, UnpublishVolume not supported",
	"ControllerUnpublishVolume not supported",
	"ControllerListVolumeHealth not supported",
	"NodeGetVolumeHealth not supported",
	"NodeGetStorageHealth not supported",
	"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
}

// TestDriverIsSane tests our own driver in each of its kinds or, if CSI_ENDPOINT is set,
// the driver at that endpoint.
func TestDriverIsSane(t *testing.T) {
	if endpoint := os.Getenv("CSI_ENDPOINT"); endpoint != "" {
		run(t, setup{
			endpoint: endpoint, access: cmp.Or(os.Getenv("CSI_ACCESS_TYPE"), "mount"),
			size: cmp.Or(os.Getenv("CSI_VOLUME_SIZE"), "1Gi"), expand: cmp.Or(os.Getenv("CSI_EXPAND_SIZE"), "2Gi"),
			params: os.Getenv("CSI_PARAMETERS"),
		})
		return
	}
	for name, s := range map[string]setup{
		"image": {access: "mount", size: "16Mi", expand: "32Mi", mutable: "readAheadKB=64"},
		"block": {access: "block", size: "16Mi", expand: "32Mi", mutable: "readAheadKB=64"},
		// Directories have no mutable parameter, and the suite modifies them without one, which CSI does not allow.
		"directory": {
			access: "mount", size: "1Gi", expand: "2Gi", params: "type=directory",
			leave: "ModifyVolume .* should (fail if volume does not exist|modify a volume)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for reason := range run(t, s).skips() {
				if left := reason == "skipped" && s.leave != ""; !left && !slices.Contains(justified, reason) {
					t.Errorf("skipped for %q, which no missing capability justifies", reason)
				}
			}
		})
	}
}

// run runs the suite in a process of its own and reports its failures.
func run(t *testing.T, s setup) report {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("must run as root: a CSI driver mounts")
	}
	dir := t.TempDir()
	t.Cleanup(func() { detachLeftovers(t, dir) })
	junit := filepath.Join(dir, "junit.xml")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSuite$", "-test.v",
		"-ginkgo.no-color", "-ginkgo.junit-report="+junit, "-ginkgo.skip="+cmp.Or(s.leave, "^$"))
	cmd.Env = append(os.Environ(), envDir+"="+dir, envEndpoint+"="+s.endpoint, envAccess+"="+s.access,
		envSize+"="+s.size, envExpand+"="+s.expand, envParams+"="+s.params, envMutable+"="+s.mutable)
	if s.endpoint == "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	out, err := cmd.CombinedOutput()
	r, readErr := readReport(junit)
	if readErr != nil {
		t.Fatalf("the suite left no report: %v\n%s", readErr, out)
	}
	t.Log(r)
	if err != nil {
		t.Fatalf("the suite failed: %v\n%s", err, out)
	}
	return r
}

// TestSuite is the child: it does nothing unless run started it.
func TestSuite(t *testing.T) {
	dir := os.Getenv(envDir)
	if dir == "" {
		return
	}
	config := sanity.NewTestConfig()
	config.Address = os.Getenv(envEndpoint)
	if config.Address == "" {
		config.Address = startLocalDriver(t, dir)
	}
	config.TargetPath = filepath.Join(dir, "target")
	config.StagingPath = filepath.Join(dir, "staging")
	config.TestVolumeAccessType = os.Getenv(envAccess)
	config.TestVolumeSize = bytes(t, os.Getenv(envSize))
	config.TestVolumeExpandSize = bytes(t, os.Getenv(envExpand))
	config.TestVolumeParameters = pairs(os.Getenv(envParams))
	config.TestVolumeMutableParameters = pairs(os.Getenv(envMutable))
	sanity.Test(t, config)
}

// pairs parses KEY=VALUE,KEY=VALUE.
func pairs(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			all[key] = value
		}
	}
	return all
}

// startLocalDriver serves our driver in this process, and checks at the end
// that it has left nothing mounted, attached or recorded.
func startLocalDriver(t *testing.T, dir string) (endpoint string) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("make mounts private: %v", err)
	}
	stateDir := filepath.Join(dir, "state")
	d, err := localdriver.New(localdriver.Config{
		NodeID: "node-1", StateDir: stateDir, Roots: []string{dir},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	endpoint = "unix://" + filepath.Join(dir, "csi.sock")
	go func() { served <- d.Serve(ctx, endpoint) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		checkNothingLeft(t, dir, stateDir)
	})
	return endpoint
}

func checkNothingLeft(t *testing.T, dir, stateDir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir) {
			t.Errorf("still mounted: %s", line)
		}
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range backing {
		file, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(file), stateDir+"/") {
			t.Errorf("still attached: %s: %s", name, file)
		}
	}
	left, err := filepath.Glob(filepath.Join(stateDir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		t.Errorf("left in the state directory: %s", name)
	}
}

// detachLeftovers detaches the loop devices of files below dir that a failed child has
// left; its mounts have gone with its namespace.
func detachLeftovers(t *testing.T, dir string) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Error(err)
	}
	for _, name := range backing {
		file, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(file), dir+"/") {
			continue
		}
		dev, err := os.Open("/dev/" + filepath.Base(filepath.Dir(filepath.Dir(name))))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Errorf("detach %s: %v", dev.Name(), err)
		}
		dev.Close()
	}
}

// report is the result of the suite, in junit's schema.
type report struct {
	Suites []struct {
		Cases []struct {
			Name    string   `xml:"name,attr"`
			Status  string   `xml:"status,attr"`
			Skipped *message `xml:"skipped"`
			Failure *message `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type message struct {
	Text string `xml:"message,attr"`
}

func readReport(path string) (report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return report{}, err
	}
	var r report
	return r, xml.Unmarshal(b, &r)
}

// skips counts skipped specs by reason, except those that the suite itself leaves out for
// now (pending).
func (r report) skips() map[string]int {
	reasons := map[string]int{}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			if c.Skipped != nil && c.Status == "skipped" {
				reason := strings.TrimPrefix(c.Skipped.Text, "skipped - ")
				reasons[reason]++
			}
		}
	}
	return reasons
}

func (r report) String() string {
	counts := map[string]int{}
	var failed []string
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			counts[c.Status]++
			if c.Failure != nil {
				failed = append(failed, c.Name)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d passed, %d failed, %d pending, %d skipped", counts["passed"], len(failed), counts["pending"], counts["skipped"])
	skips := r.skips()
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		fmt.Fprintf(&b, "\n  skipped %d: %s", skips[reason], reason)
	}
	for _, name := range failed {
		fmt.Fprintf(&b, "\n  failed: %s", name)
	}
	return b.String()
}

func bytes(t *testing.T, quantity string) int64 {
	t.Helper()
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		t.Fatalf("size %q: %v", quantity, err)
	}
	return q.Value()
}
