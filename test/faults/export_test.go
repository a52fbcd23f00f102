package faults

import (
	"archive/tar"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// unpacked returns the files of a bundle by their names below its only directory.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(b)
	}
}

// signingKey writes a private key, and returns a line of it to search for.
func signingKey(t *testing.T, path string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[1]
}

// A support bundle has no secret of the node: not from Secrets that drivers get and quote,
// from a pod's files and tokens, or from options, parameters and addresses that people put
// passwords into. It has the facts that support needs.
//
// Items: N-35.
// Faults: A129.
func TestSupportBundleHasNoSecret(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	key := filepath.Join(n.Dir, "key.pem")
	line := signingKey(t, key)
	config := filepath.Join(n.Dir, "config.yaml")
	n.write(config, "root-dir: "+n.Root+"\nstate-dir: "+filepath.Join(n.Dir, "state")+"\ntraces-endpoint: http://ann:planted-in-url@127.0.0.1:1\ntoken-signing-key: "+key+"\n")
	n.flags = []string{"--config", config}
	n.begin(csistrict.Script{Faults: []csistrict.Fault{{
		ID: "quotes", Call: "NodeStageVolume", Volume: "quotes", Code: uint32(codes.Internal), Effect: csistrict.EffectNone,
		Message: "mount -o user=ann,pass=planted-quoted: no such array",
	}}})
	login := func(name, value string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\nstringData: {key: " + value + "}"
	}
	n.Apply(login("stage", "planted-quoted"), login("files", "planted-in-file"),
		n.class("secret", "quotes", "csi.storage.k8s.io/node-stage-secret-name", "stage", "csi.storage.k8s.io/node-stage-secret-namespace", "default"),
		want{name: "data", class: "secret"}.String(), harness.Pod("stuck", fromClaim("data")),
		harness.Pod("web", volume{Name: "key", Source: "secret: {secretName: files}"},
			volume{Name: "token", Source: "projected: {sources: [{serviceAccountToken: {path: token}}]}"}),
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: lost}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n"+
			"  mountOptions: [pw=planted-option]\n  claimRef: {namespace: default, name: lost}\n"+
			"  csi: {driver: absent.faults.dev, volumeHandle: v, volumeAttributes: {login: planted-attribute}}", absent("lost-pod")[1], absent("lost-pod")[2])
	n.Mounted("web")
	n.explained("pod", "stuck", "no such array")
	n.explained("pod", "lost-pod", "has not registered")

	bundle := filepath.Join(n.Dir, "bundle.tar.gz")
	n.Do("", "trace", "--export", bundle, "--config", config)
	files := unpacked(t, bundle)
	token, err := os.ReadFile(n.only(filepath.Join(n.Root, "pods", "*", "volumes", "kubernetes.io~projected", "token", "token")))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, secret := range []string{"planted", line, string(token), strings.Split(string(token), ".")[2]} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q:\n%s", name, secret, text)
			}
		}
	}
	for name, want := range map[string]string{
		"README": "Secrets are not in it", "version.json": `"daemon"`, "config.txt": "http://LEFT-OUT@127.0.0.1:1", "doctor.json": `"findings"`,
		"explain.txt": "no such array", "calls.json": "no such array", "volumes.json": `"login": "LEFT-OUT"`, "pods.json": `"stuck"`,
		"drivers.json": driverName, "claims.json": `"lost"`, "persistentvolumes.json": "absent.faults.dev", "sockets.json": "plugins_registry",
		"metrics.txt": "csi_volmgr_held_volumes", "mounts.txt": "kubernetes.io~secret", "journal.txt": "state.db", "problems.json": "", "stats.json": "",
	} {
		if text, there := files[name]; !there || !strings.Contains(text, want) {
			t.Errorf("%s (there: %v) lacks %q:\n%s", name, there, want, text)
		}
	}

	// A second export does not overwrite the file, and a bundle without a daemon has less
	// in it.
	if r := n.CLI("", "trace", "--export", bundle, "--config", config); r.Code != 1 || !strings.Contains(r.Stderr, "exists") {
		t.Errorf("over a file: exit code %d, %s", r.Code, r.Stderr)
	}
	n.daemon.Kill()
	n.Do("", "trace", "--export", bundle+"2", "--config", config)
	if files := unpacked(t, bundle+"2"); !strings.Contains(files["README"], "no daemon answers") || files["mounts.txt"] == "" || files["pods.json"] != "" {
		t.Errorf("without a daemon: %v", files)
	}
	n.start()
	n.DriverUp(driverName)
	n.play(csistrict.Script{})
	n.DeletePods("stuck", "web", "lost-pod")
}

// only returns the one path that matches the pattern.
func (n *node) only(pattern string) string {
	n.T.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		n.T.Fatalf("%s: found %v, %v", pattern, found, err)
	}
	return found[0]
}
