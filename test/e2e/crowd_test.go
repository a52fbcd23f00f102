package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// emptyDirs returns n emptyDirs, v0 and on.
func emptyDirs(n int) (all []volume) {
	for i := range n {
		all = append(all, volume{Name: fmt.Sprintf("v%d", i), Source: "emptyDir: {}"})
	}
	return all
}

// callBegins matches the daemon's line about a call, with its verb and its pod's uid.
var callBegins = regexp.MustCompile(`msg="call begins" .* op=(\w+) pod=(\S+)`)

// A pod with thousands of volumes is listed before small pods, which are mounted, and unmounted, before half of its
// calls have begun: pods take turns.
func TestALargePodLetsSmallOnesPass(t *testing.T) {
	localOnly(t) // the kind is built in
	const many, others = 2000, 5
	n := newPlace(t)
	n.start()
	pods, uids := []string{harness.Pod("a-large", emptyDirs(many)...)}, map[string]bool{}
	var small []string
	for i := range others {
		name := fmt.Sprintf("small-%d", i)
		pods, small = append(pods, harness.Pod(name, emptyDirs(1)...)), append(small, name)
	}
	n.Apply(pods...)
	n.Mounted(small...)
	large := n.Do("", "get", "pod", "a-large", "-o", "jsonpath={.pod.uid}")
	for _, name := range small {
		uids[n.Do("", "get", "pod", name, "-o", "jsonpath={.pod.uid}")] = true
	}
	n.Mounted("a-large")
	n.Do(manifest(pods...), "delete", "-f", "-")
	n.Unmounted(append(small, "a-large")...)
	n.nothingLeft()
	log, err := os.ReadFile(n.daemon.Log())
	if err != nil {
		t.Fatal(err)
	}
	calls := callBegins.FindAllStringSubmatch(string(log), -1)
	for _, verb := range []string{"Publish", "Unpublish"} {
		ofLarge, ofSmall, before := 0, 0, 0
		for _, c := range calls {
			switch {
			case c[1] == verb && c[2] == large:
				ofLarge++
			case c[1] == verb && uids[c[2]]:
				ofSmall, before = ofSmall+1, ofLarge
			}
		}
		t.Logf("%s: the last of %d small pods came after %d of %d calls", verb, ofSmall, before, ofLarge)
		if ofSmall != others || ofLarge < many || before > many/2 {
			t.Errorf("%s: %d calls of small pods, the last after %d of %d of the large one", verb, ofSmall, before, ofLarge)
		}
	}
}

// A limit of volumes per pod that is turned on takes nothing away: a pod above it goes on, its volumes are renewed, and it
// can be removed. When it comes again, and for a new pod, the limit holds; a pod within it is mounted.
func TestALimitOfVolumesIsForNewPods(t *testing.T) {
	eachKind(t, func(n *node) {
		const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: %s}"
		volumes := append(emptyDirs(2), harness.FromClaim("data", "data"), volume{Name: "settings", Source: "configMap: {name: settings}"})
		large := harness.Pod("large", volumes...)
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), fmt.Sprintf(settings, "low"), large)
		n.Mounted("large")
		write(n.T, filepath.Join(n.HostPath("large", "data"), "f"), "kept")
		ids := n.mountIDs()

		n.daemon.Ask()
		n.flags = append(n.flags, "--volumes-per-pod=3")
		n.start()
		n.DriverUp(n.driver.kind.name)
		n.asWanted("large")
		n.wantMounts("after the limit was turned on", ids)
		n.Apply(fmt.Sprintf(settings, "high"))
		at := filepath.Join(n.HostPath("large", "settings"), "level")
		n.Eventually("the new content to reach the large pod", func() bool {
			b, err := os.ReadFile(at)
			return err == nil && string(b) == "high"
		})
		n.Apply(harness.Pod("new", emptyDirs(4)...), harness.Pod("small", emptyDirs(3)...))
		n.Mounted("small")
		refusal := []string{"pod default/new", "found 4 that its containers use", "at most 3", "--volumes-per-pod=3"}
		n.blocked("new", refusal...)
		if said := n.CLI("", "explain", "pod", "new").Stdout; !strings.Contains(said, refusal[3]) {
			n.T.Errorf("explain pod new: %s", said)
		}

		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.kind.name)
		n.asWanted("large")
		n.DeletePods("large")
		n.Apply(large)
		n.blocked("large", slices.Concat([]string{"pod default/large"}, refusal[1:])...)
		n.DeletePods("large", "new", "small")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}
