package manifest

import (
	"slices"
	"testing"
)

// A name that is not known leads to the one that was meant: by typing errors relative to its length, as a part, or by its
// initials; and to none if nothing is near.
func TestTheNearestNames(t *testing.T) {
	mounts := []string{"mountPath", "mountPropagation", "name", "readOnly", "subPath", "subPathExpr"}
	sources := []string{"configMap", "emptyDir", "hostPath", "persistentVolumeClaim", "secret"}
	for name, c := range map[string]struct{ known, want []string }{
		"claim":                {[]string{"claimName", "readOnly"}, []string{"claimName"}},
		"storageClass":         {[]string{"accessModes", "storageClassName", "volumeName"}, []string{"storageClassName"}},
		"pvc":                  {sources, []string{"persistentVolumeClaim"}},
		"configmap":            {sources, []string{"configMap"}},
		"persistantVolumClaim": {sources, []string{"persistentVolumeClaim"}},
		"path":                 {mounts, []string{"mountPath", "subPath", "subPathExpr"}},
		"mountpth":             {mounts, []string{"mountPath"}},
		"ps":                   {[]string{"gc", "ui", "top"}, nil},
		"cat":                  {[]string{"get", "gc"}, nil},
		"name":                 {mounts, nil}, // known, in the wrong place
		"":                     {mounts, nil},
	} {
		if got := Nearest(name, c.known); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", name, got, c.want)
		}
	}
}
