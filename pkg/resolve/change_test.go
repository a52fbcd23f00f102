package resolve_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/manifest"
)

// L14: what is immutable keeps its data, as with an API server.
func TestImmutableObjectsKeepTheirData(t *testing.T) {
	const (
		secret    = "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, stringData: {k: VALUE}}"
		configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, data: {k: VALUE}}"
		binary    = "{apiVersion: v1, kind: ConfigMap, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, binaryData: {k: VALUE}}"
	)
	for name, text := range map[string]string{"data": secret, "data ": configMap, "binaryData": binary} {
		faults := func(was, is []string) string {
			t.Helper()
			objects := func(values []string) runtime.Object {
				found, err := manifest.Decode("t", []byte(strings.NewReplacer(values...).Replace(text)))
				if err != nil {
					t.Fatal(err)
				}
				return found[0]
			}
			var all []string
			for _, f := range resolve.CheckChange(objects(was), objects(is)) {
				all = append(all, f.Field)
				if strings.Contains(f.String(), "b25l") || strings.Contains(f.String(), "dHdv") {
					t.Errorf("a value is told: %s", f)
				}
			}
			return strings.Join(all, " ")
		}
		one := []string{"LABEL", "x", "IMMUTABLE", "true", "VALUE", "b25l"}
		for want, is := range map[string][]string{
			"":                                     {"LABEL", "y", "IMMUTABLE", "true", "VALUE", "b25l"},
			strings.TrimSpace(name):                {"LABEL", "x", "IMMUTABLE", "true", "VALUE", "dHdv"},
			"immutable":                            {"LABEL", "x", "IMMUTABLE", "false", "VALUE", "b25l"},
			strings.TrimSpace(name) + " immutable": {"LABEL", "x", "IMMUTABLE", "false", "VALUE", "dHdv"},
		} {
			if got := faults(one, is); got != want {
				t.Errorf("%s: got faults of %q, want of %q", name, got, want)
			}
			if got := faults([]string{"LABEL", "x", "IMMUTABLE", "false", "VALUE", "b25l"}, is); got != "" {
				t.Errorf("%s, of one that may change: got faults of %q", name, got)
			}
		}
	}
}
