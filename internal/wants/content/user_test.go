package content_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// userOf returns a file's user, or -1 for the default, root.
func userOf(f content.File) int64 {
	if f.Owner == nil {
		return -1
	}
	return *f.Owner
}

// An item's user overrides the volume's default; a file without either belongs to root (KEP-5936).
func TestFilesHaveTheUserOfTheirItemOrVolume(t *testing.T) {
	w := newWorld(t)
	r := w.reader()
	r.Token = func(string, time.Duration) ([]byte, error) { return []byte("token"), nil }
	for source, want := range map[string]map[string]int64{
		"configMap: {name: conf}":                    {"a": -1, "b": -1, "c": -1},
		"configMap: {name: conf, defaultUser: 1001}": {"a": 1001, "b": 1001, "c": 1001},
		"configMap: {name: conf, defaultUser: 1001, items: [{key: a, path: a, user: 7}, {key: b, path: b}]}":                                                   {"a": 7, "b": 1001},
		"configMap: {name: conf, defaultUser: 1001, items: [{key: a, path: a, user: 0}]}":                                                                      {"a": 0},
		"secret: {secretName: cert, defaultUser: 5}":                                                                                                           {"a": 5, "key": 5},
		"secret: {secretName: cert, items: [{key: a, path: a, user: 7}, {key: key, path: k}]}":                                                                 {"a": 7, "k": -1},
		"downwardAPI: {defaultUser: 5, items: [{path: name, fieldRef: {fieldPath: metadata.name}}, {path: m, user: 6, fieldRef: {fieldPath: metadata.name}}]}": {"name": 5, "m": 6},
		"projected: {sources: [{configMap: {name: conf, items: [{key: a, path: a, user: 7}]}}]}":                                                               {"a": 7},
		"projected: {defaultUser: 5, sources: [{secret: {name: cert}}, {serviceAccountToken: {path: t}}, {serviceAccountToken: {path: u, user: 8}}]}": {
			"a": 5, "key": 5, "t": 5, "u": 8,
		},
		"projected: {defaultUser: 5, sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}": {"name": 5},
	} {
		files, err := read(t, r, source)
		if err != nil || len(files) != len(want) {
			t.Errorf("%s: got %v, %v", source, files, err)
		}
		for path, user := range want {
			if got := userOf(files[path]); got != user {
				t.Errorf("%s: %s is of user %d, want %d", source, path, got, user)
			}
		}
	}
}

// read reads a volume's source as written in a pod.
func read(t *testing.T, r content.Reader, source string) (content.Files, error) {
	t.Helper()
	v := decode[corev1.VolumeSource](t, source)
	switch {
	case v.ConfigMap != nil:
		return r.ConfigMap(*v.ConfigMap)
	case v.Secret != nil:
		return r.Secret(*v.Secret)
	case v.DownwardAPI != nil:
		return r.DownwardAPI(*v.DownwardAPI)
	}
	return r.Projected(*v.Projected)
}

// Only one user can read a file that is the pod's own: the source's user, else the
// volume's, else the user that all containers run as.
func TestFilesOfThePodsOwnAreForTheirUserAlone(t *testing.T) {
	w := newWorld(t)
	r := w.reader()
	r.Token = func(string, time.Duration) ([]byte, error) { return []byte("token"), nil }
	r.Certificate = func(corev1.PodCertificateProjection) (key, chain []byte, err error) {
		return []byte("k"), []byte("c"), nil
	}
	sources := `[{serviceAccountToken: {path: t@}}, {clusterTrustBundle: {path: b@, name: none, optional: true}},
  {podCertificate: {signerName: s/x, keyType: ED25519, keyPath: k, certificateChainPath: c@}}]`
	for _, tc := range []struct {
		runAs          int64 // 0 for none
		volume, source string
		user           int64
		mode           uint32
	}{
		{0, "", "", -1, 0o644},
		{0, "", ", user: 8", 8, 0o600},
		{0, "defaultUser: 5, ", "", 5, 0o600},
		{0, "defaultUser: 5, ", ", user: 8", 8, 0o600},
		{1000, "", "", 1000, 0o600},
		{1000, "", ", user: 0", 0, 0o600},
		{1000, "defaultUser: 5, ", "", 5, 0o600},
	} {
		w.pod.Spec.SecurityContext = nil
		if tc.runAs != 0 {
			w.pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &tc.runAs}
		}
		text := "projected: {" + tc.volume + "sources: " + strings.ReplaceAll(sources, "@", tc.source) + "}"
		files, err := read(t, r, text)
		if err != nil || len(files) != 4 {
			t.Fatalf("%s: got %v, %v", text, files, err)
		}
		for path, f := range files {
			if userOf(f) != tc.user || f.Mode != tc.mode {
				t.Errorf("%s, containers run as %d: %s is of user %d, mode %o, want %d, %o", text, tc.runAs, path, userOf(f), f.Mode, tc.user, tc.mode)
			}
		}
	}
}

func TestUsersThatThereAreNot(t *testing.T) {
	r := newWorld(t).reader()
	r.Token = func(string, time.Duration) ([]byte, error) { return []byte("token"), nil }
	r.Certificate = func(corev1.PodCertificateProjection) (key, chain []byte, err error) { return nil, nil, nil }
	for source, field := range map[string]string{
		"configMap: {name: conf, defaultUser: -1}":                                                            "defaultUser: found -1, want a user id of 0 to 2147483647",
		"secret: {secretName: cert, defaultUser: 2147483648}":                                                 "defaultUser: found 2147483648",
		"configMap: {name: conf, items: [{key: a, path: a, user: -1}]}":                                       "items[0].user: found -1",
		"downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}, user: -2}]}":                "items[0].user: found -2",
		"projected: {defaultUser: -1, sources: [{secret: {name: cert}}]}":                                     "defaultUser: found -1",
		"projected: {sources: [{serviceAccountToken: {path: t, user: -1}}]}":                                  "sources[0].serviceAccountToken: user: found -1",
		"projected: {sources: [{clusterTrustBundle: {path: t, name: x, optional: true, user: -1}}]}":          "sources[0].clusterTrustBundle: user: found -1",
		"projected: {sources: [{podCertificate: {signerName: s/x, keyType: ED25519, keyPath: k, user: -1}}]}": "sources[0].podCertificate: user: found -1",
	} {
		if _, err := read(t, r, source); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v, want %q", source, err, field)
		}
	}
}
