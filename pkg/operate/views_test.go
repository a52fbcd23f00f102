package operate

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/file"
)

func TestAProblemNamesFileAndLineOnce(t *testing.T) {
	v := NewViews(ViewsConfig{Manifests: "/m"})
	for text, want := range map[string]string{
		"bad.yaml:3: document 1: spec: wrong": "/m/bad.yaml:3: document 1: spec: wrong",
		"being written":                       "/m/bad.yaml: being written",
		"bad.yaml: not a file":                "/m/bad.yaml: bad.yaml: not a file",
	} {
		if got := v.problem(source.Problem{Provider: file.Name, Where: "bad.yaml", Text: text}).String(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := v.problem(source.Problem{Provider: "api", Where: "pod a/b", Text: "unreadable"}).String(); got != "source api: pod a/b: unreadable" {
		t.Errorf("got %q", got)
	}
}
