package strict

import (
	"cmp"
	"context"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) {
	drivertest.Enter()
	os.Exit(m.Run())
}

// usual are the rules that the suite itself breaks, by call: it deliberately sends requests
// that must be refused, leaves fields out, repeats failed calls at once, and asks for
// abilities before every test.
var usual = map[string][]string{
	"NodeGetCapabilities":     {"N-15"},
	"NodeStageVolume":         {"N-24", "N-30", "N-39", "N-40", "N-46", "N-53"},
	"NodeUnstageVolume":       {"N-24"},
	"NodePublishVolume":       {"N-24", "N-46", "N-48"},
	"NodeUnpublishVolume":     {"N-24"},
	"NodeGetVolumeStats":      {"N-24", "N-42", "N-80"},
	"NodeExpandVolume":        {"N-24", "N-42", "N-46", "N-97", "N-99"},
	"ControllerPublishVolume": {"N-24", "N-40", "N-46", "N-59", "N-103"},
	"CreateVolume":            {"N-23", "N-46"},
}

// justified are the reasons to skip a test: services and abilities that the driver lacks, since
// it exists for what a node does with a volume; and tests that the suite itself has turned off.
var justified = []string{
	"GetSnapshot not supported",
	"ControllerModifyVolume not supported", "Modify volume not supported", "Modify Volume not supported",
	"NodeGetVolumeHealth not supported", "NodeGetStorageHealth not supported",
	"ControllerListVolumeHealth not supported",
	"ControllerPublishVolume.readonly field not supported", "GetCapacity not supported",
	"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported", "pending", "skipped - testnodevolumeattachlimit not enabled",
}

// The suite can run only once in a process (ginkgo).
func TestStrictDriverIsSane(t *testing.T) {
	dir, err := os.MkdirTemp("", "strict-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	state := filepath.Join(dir, "state")
	d, err := csistrict.New(csistrict.Config{Name: "strict.sanity.dev", NodeID: "node-1", StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	socket := filepath.Join(dir, "csi.sock")
	go func() { served <- d.Serve(ctx, socket) }()
	config := sanity.NewTestConfig()
	config.Address = "unix://" + socket
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.IdempotentCount = 2
	config.TestVolumeSize, config.TestVolumeExpandSize = 1<<20, 2<<20
	junit := filepath.Join(dir, "junit.xml")
	if err := flag.Set("ginkgo.junit-report", junit); err != nil {
		t.Fatal(err)
	}
	sanity.Test(t, config)
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	events, err := csistrict.ReadTranscript(state)
	if err != nil || len(events) == 0 {
		t.Fatalf("transcript: %d events, %v", len(events), err)
	}
	for _, b := range csistrict.Breaches(events) {
		if !slices.Contains(usual[b.Call], b.Rule) && b.Rule != "N-24" {
			t.Errorf("breach of %s by %s: %s", b.Rule, b.Call, b.Text)
		}
	}
	checkReport(t, junit)
	model, err := csistrict.ReadModel(state)
	if err != nil || len(model.Left()) > 0 {
		t.Errorf("left by the suite: %v, %v", model.Left(), err)
	}
}

// checkReport prints how many tests passed, and fails for one that was skipped without a
// justified reason.
func checkReport(t *testing.T, path string) {
	t.Helper()
	var report struct {
		Cases []struct {
			Status  string `xml:"status,attr"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = xml.Unmarshal(data, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	passed, skipped := 0, map[string]int{}
	for _, c := range report.Cases {
		switch {
		case c.Status == "passed":
			passed++
		case c.Skipped != nil:
			skipped[strings.TrimSpace(cmp.Or(reason.FindString(c.Skipped.Message), c.Skipped.Message))]++
		}
	}
	t.Logf("passed %d", passed)
	for why, n := range skipped {
		t.Logf("skipped %d: %s", n, why)
		if !slices.Contains(justified, why) {
			t.Errorf("skipped for %q, which nothing that the driver lacks justifies", why)
		}
	}
}

var reason = regexp.MustCompile(`[^-]*not supported`)
