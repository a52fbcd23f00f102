package wire

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// The node lists the objects of its sources by name, without their values.
func TestObjectsAreListedWithoutValues(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, `
apiVersion: v1
kind: Secret
metadata: {name: login, labels: {app: web}}
stringData: {password: hunter2-and-more}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: something-long, b: other}
binaryData: {c: AAAA}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: x.example.com
parameters: {key: parameter-value}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: x.example.com}
spec: {attachRequired: false, volumeLifecycleModes: [Persistent, Ephemeral]}
`)
	for kind, want := range map[string]struct {
		name, about string
		keys        []string
	}{
		"Secret": {"login", "1 key", []string{"password"}}, "ConfigMap": {"settings", "3 keys", []string{"a", "b", "c"}},
		"StorageClass": {"fast", "x.example.com, default", nil}, "CSIDriver": {"x.example.com", "no attach, Persistent, Ephemeral", nil},
	} {
		got := n.Views().Objects(kind)
		if len(got) != 1 || got[0].Name != want.name || got[0].About != want.about || !slices.Equal(got[0].Keys, want.keys) {
			t.Errorf("%s: %+v", kind, got)
			continue
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"hunter2", "something-long", "parameter-value"} {
			if strings.Contains(string(text), value) {
				t.Errorf("%s: %q is in %s", kind, value, text)
			}
		}
	}
	if got := n.Views().Objects("Secret")[0].Labels["app"]; got != "web" {
		t.Errorf("label %q", got)
	}
	if got := n.Views().Objects("Nosuch"); len(got) != 0 {
		t.Errorf("of no kind: %+v", got)
	}
}

// Deleting a missing object returns an error that says so.
func TestDeletionOfWhatIsNotThereSaysSo(t *testing.T) {
	n, _ := start(t, dirs(t))
	err := n.DeletePod(t.Context(), "default", "nosuch")
	if !errors.Is(err, server.ErrNotFound) || server.Message(err) != "pod default/nosuch not found among what was applied" {
		t.Errorf("pod: %v", err)
	}
	_, err = n.DeleteClaim(t.Context(), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "nosuch"})
	if !errors.Is(err, server.ErrNotFound) || !strings.Contains(server.Message(err), "default/nosuch not found") {
		t.Errorf("claim: %v", err)
	}
}

// apply --skip-unknown takes what csi-volmgr reads of a vendor's whole file, and delete -f withdraws it by the same file.
func TestTheRestOfAVendorsFileIsApplied(t *testing.T) {
	n, _ := start(t, dirs(t))
	m := manifestOf("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d, namespace: kube-system}\n---\n" +
		"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example.com}\nspec: {attachRequired: false}\n")
	if _, err := n.Apply(t.Context(), m); !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), "apply the other 1 with: csi-volmgr apply --skip-unknown") {
		t.Errorf("%v", err)
	}
	m.SkipUnknown = true
	skipped := server.Applied{Kind: "DaemonSet", Namespace: "kube-system", Name: "d", Result: "skipped"}
	if got, err := n.Apply(t.Context(), m); err != nil || len(got) != 2 || got[0].Result != "created" || got[1] != skipped {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := n.Withdraw(t.Context(), m); err != nil || len(got) != 2 || got[0].Result != "skipped" || got[1].Result != "deleted" {
		t.Errorf("%+v, %v", got, err)
	}
}
