package intree

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// What New lacks is named. The module in test/door uses the kinds.
func TestWhatIsMissingIsNamed(t *testing.T) {
	for want, c := range map[string]Config{
		`Root: found "root", want an absolute path`: {Root: "root"},
		"Objects, Manager: found nil":               {Root: "/root", Manager: func() *manager.Manager { return nil }},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
