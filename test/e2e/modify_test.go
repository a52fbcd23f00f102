package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A volume is made with the parameters of its claim's VolumeAttributesClass, is modified
// while a pod has it, and keeps the parameters when it is mounted again. If the driver
// refuses a class, the claim says so.
//
// Scenarios: U-184.
// Sidecars: SR-08.
func TestVolumeIsModified(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		if !n.driver.local || !n.driver.sizes {
			t.Log("the driver's volumes have no device of their own: its mutable parameters are none")
			return
		}
		class := func(name, readAhead string) string {
			return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: %s}
driverName: %s
parameters: {readAheadKB: %q}
`, name, n.driver.name, readAhead)
		}
		with := func(name string) string {
			return strings.Replace(claim("data", "64Mi", fileSystem, rwo), "spec:\n", "spec:\n  volumeAttributesClassName: "+name+"\n", 1)
		}
		readAhead := func() string {
			var st unix.Stat_t
			if err := unix.Stat(n.HostPath("web", "data"), &st); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/queue/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev)))
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(text))
		}
		current := func() string {
			return n.Do("", "get", "pvc", "data", "-o", "jsonpath={.currentVolumeAttributesClassName}")
		}
		n.Apply(n.driver.class(), class("slow", "64"), class("fast", "2048"), class("bad", "much"), with("slow"),
			harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		if got := readAhead(); got != "64" || current() != "slow" {
			t.Errorf("made: %s, %s", got, current())
		}
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "text")
		n.Apply(with("fast"))
		n.Eventually("the volume to be modified", func() bool { return current() == "fast" })
		if got := readAhead(); got != "2048" {
			t.Errorf("modified: %s", got)
		}
		n.Apply(with("bad"))
		n.Eventually("the refusal to be said", func() bool {
			return strings.Contains(n.CLI("", "get", "pvc", "data", "-o", "jsonpath={.reason}").Stdout, "expected a number")
		})
		n.Apply(with("fast"))
		n.DeletePods("web")
		n.NoVolumes()
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		if got := readAhead(); got != "2048" || current() != "fast" {
			t.Errorf("mounted again: %s, %s", got, current())
		}
		wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "text")
		n.DeletePods("web")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}
