package e2e

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// damageJournal changes a text wherever the journal has it, without a daemon.
func (n *node) damageJournal(was, is string) {
	n.T.Helper()
	n.daemon.Stop()
	path := n.Path("state/state.db")
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(data, []byte(was)) {
		err = errors.New("the journal has no " + was)
	}
	if err != nil {
		n.T.Fatal(err)
	}
	must(n.T, os.WriteFile(path, bytes.ReplaceAll(data, []byte(was), []byte(is)), 0o600))
}

// problemOf returns the first answer's problem of the object.
func (n *node) problemOf(object string) string {
	n.T.Helper()
	all, err := n.API.Problems(n.T.Context())
	if err != nil {
		n.T.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p server.Problem) bool { return p.Object == object })
	if i < 0 {
		n.T.Fatalf("no problem of %s: %+v", object, all)
	}
	return all[i].Message
}

// A bit that flips in one claim holds up that claim alone: pods of others go, and so do their claims. Its pod keeps what
// it has. A bit in a volume's record holds up that volume, which the next daemon says once its sources have spoken, with the
// command that mends it.
//
// Faults: A003, A184.
func TestOneBadBitHoldsUpWhatItIsAboutAlone(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		beta := strings.Replace(claim("beta", "64Mi", fileSystem, rwo), "{name: beta}", "{name: beta, labels: {mark: whole}}", 1)
		n.Apply(n.driver.class(), claim("alpha", "64Mi", fileSystem, rwo), beta,
			harness.Pod("a", harness.FromClaim("data", "alpha")), harness.Pod("b", harness.FromClaim("data", "beta")))
		n.Mounted("a")
		n.Mounted("b")
		at := n.HostPath("b", "data")
		ids := n.mountIDs()

		n.damageJournal("whole", "wHole")
		n.start()
		n.DriverUp(n.driver.kind.name)
		if p := n.problemOf("claim default/beta"); !strings.Contains(p, "apply it again: csi-volmgr apply -f FILE") {
			t.Errorf("problem: %s", p)
		}
		n.DeletePods("a")
		n.Do("", "delete", "pvc", "alpha")
		if got := n.mountIDs(); got[at] != ids[at] {
			t.Errorf("mount of b: %d, was %d", got[at], ids[at])
		}
		n.Apply(beta)
		n.Mounted("b")

		volumes, err := n.API.Volumes(n.T.Context())
		if err != nil || len(volumes) != 1 {
			t.Fatalf("volumes: %+v, %v", volumes, err)
		}
		n.damageJournal(`"stagePath":"`, `"stAgePath":"`) // the volume's record has it, the claim's has not
		n.start()
		for _, object := range []string{"volume " + string(volumes[0].Volume.ID), "pod default/b"} {
			n.Eventually(object+" to be a problem once the sources have spoken", func() bool {
				all, err := n.API.Problems(t.Context())
				return err == nil && slices.ContainsFunc(all, func(p server.Problem) bool {
					return p.Object == object && strings.Contains(p.Message, "cannot be read")
				})
			})
		}
		said := n.Do("", "explain", "pod", "b")
		if !strings.Contains(said, "csi-volmgr journal repair") || strings.Contains(said, "automatically as soon") {
			t.Errorf("explain: %s", said)
		}
		n.daemon.Stop()
		n.Do("", "journal", "repair", "--state-dir", n.Path("state"))
		n.start()
		n.DriverUp(n.driver.kind.name)
		n.Mounted("b")
		if got := n.mountIDs(); got[at] != ids[at] {
			t.Errorf("mount of b after the repair: %d, was %d", got[at], ids[at])
		}
	})
}
