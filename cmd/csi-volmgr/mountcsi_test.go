package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
)

func TestWhatMountAsksOfItsHelper(t *testing.T) {
	for name, tc := range map[string]struct {
		args  string
		want  mountRequest
		words string // in the error
	}{
		"plain": {args: "default/data /srv", want: mountRequest{name: "default/data", dir: "/srv"}},
		"no namespace": {
			args: "data /srv -v -n -o rw", want: mountRequest{name: "default/data", dir: "/srv", words: []string{"rw"}},
		},
		"a form that no path has": {args: "csi:default/data /srv", want: mountRequest{name: "default/data", dir: "/srv"}},
		"that form, short":        {args: "csi:data /srv", want: mountRequest{name: "default/data", dir: "/srv"}},
		"a slash at the end":      {args: "default/data/ /srv", want: mountRequest{name: "default/data", dir: "/srv"}},
		"a path":                  {args: "/home /srv", words: "write csi:NAMESPACE/CLAIM"},
		"a user's line": {
			args: "shop/db /srv -o user,noauto", want: mountRequest{name: "shop/db", dir: "/srv", words: []string{"noexec", "nosuid", "nodev"}},
		},
		"of all users, with programs": {
			args: "shop/db /srv -o users,exec", want: mountRequest{name: "shop/db", dir: "/srv", words: []string{"noexec", "nosuid", "nodev", "exec"}},
		},
		"an owner's line": {
			args: "shop/db /srv -o owner", want: mountRequest{name: "shop/db", dir: "/srv", words: []string{"nosuid", "nodev"}},
		},
		"fstab's words": {
			args: "shop/db /srv -o ro,noexec,_netdev,nofail,x-systemd.requires=a,comment=b,defaults",
			want: mountRequest{name: "shop/db", dir: "/srv", words: []string{"ro", "noexec"}},
		},
		"a volume's options": {
			args: "shop/db /srv -o class=fast,size=1Gi,mountOption=a,mountOption=b=c",
			want: mountRequest{name: "shop/db", dir: "/srv", options: map[string]string{
				"class": "fast", "size": "1Gi", "mountOptions": "a,b=c",
			}},
		},
		"time and socket": {
			args: "shop/db /srv -o timeout=7s,socket=/run/x",
			want: mountRequest{name: "shop/db", dir: "/srv", wait: 7 * time.Second, socket: "/run/x"},
		},
		"fake":            {args: "a/b /srv -fv", want: mountRequest{name: "a/b", dir: "/srv", fake: true}},
		"remount":         {args: "a/b /srv -o remount,ro", want: mountRequest{name: "a/b", dir: "/srv", remount: true, words: []string{"ro"}}},
		"a type":          {args: "a/b /srv -t csi.x", want: mountRequest{name: "a/b", dir: "/srv"}},
		"no directory":    {args: "a/b", words: "directory"},
		"not absolute":    {args: "a/b srv", words: "absolute"},
		"unknown flag":    {args: "a/b /srv -o fast", words: "unknown option fast"},
		"unknown letter":  {args: "a/b /srv -z", words: "-z"},
		"a namespace":     {args: "a/b /srv -N 7", words: "nsenter"},
		"nothing after o": {args: "a/b /srv -o", words: "expected a value"},
		"no time":         {args: "a/b /srv -o timeout=0", words: "option timeout"},
	} {
		got, err := mountArgs(strings.Fields(tc.args))
		if tc.words != "" {
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%s: %v, want %q", name, err, tc.words)
			}
			continue
		}
		if tc.want.wait == 0 {
			tc.want.wait = mountTime
		}
		if tc.want.socket == "" {
			tc.want.socket = defaultSocket
		}
		if err != nil || got.name != tc.want.name || got.dir != tc.want.dir || !slices.Equal(got.words, tc.want.words) ||
			got.fake != tc.want.fake || got.remount != tc.want.remount || got.wait != tc.want.wait || got.socket != tc.want.socket {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if len(got.options) != len(tc.want.options) {
			t.Errorf("%s: options %v, want %v", name, got.options, tc.want.options)
		}
		for k, v := range tc.want.options {
			if got.options[k] != v {
				t.Errorf("%s: option %s is %q, want %q", name, k, got.options[k], v)
			}
		}
	}
}

func TestNomadsParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		env   map[string]string
		size  string
		most  int64
		words string
	}{
		"most capacity":    {env: map[string]string{"DHV_CAPACITY_MIN_BYTES": "0", "DHV_CAPACITY_MAX_BYTES": "1048576"}, most: 1 << 20},
		"none":             {},
		"least capacity":   {env: map[string]string{"DHV_CAPACITY_MIN_BYTES": "1048576"}, size: "1048576"},
		"size wins":        {env: map[string]string{"DHV_CAPACITY_MIN_BYTES": "1", "DHV_PARAMETERS": `{"size":"1Gi"}`}, size: "1Gi"},
		"null":             {env: map[string]string{"DHV_PARAMETERS": "null", "DHV_CAPACITY_MIN_BYTES": "0"}},
		"no object":        {env: map[string]string{"DHV_PARAMETERS": "[]"}, words: "DHV_PARAMETERS"},
		"no strings":       {env: map[string]string{"DHV_PARAMETERS": `{"size":1}`}, words: "DHV_PARAMETERS"},
		"no number":        {env: map[string]string{"DHV_CAPACITY_MIN_BYTES": "1Gi"}, words: "DHV_CAPACITY_MIN_BYTES"},
		"no number either": {env: map[string]string{"DHV_CAPACITY_MAX_BYTES": "-1"}, words: "DHV_CAPACITY_MAX_BYTES"},
	} {
		options, most, err := nomadOptions(func(k string) string { return tc.env[k] })
		if tc.words != "" {
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%s: %v, want %q", name, err, tc.words)
			}
		} else if err != nil || options["size"] != tc.size || most != tc.most {
			t.Errorf("%s: %v, %v", name, options, err)
		}
	}
}

// A mount that takes longer than its timeout says what its volume waits for.
func TestALateMountSaysWhatItsVolumeWaitsFor(t *testing.T) {
	r := newRig(t, mounted(fixed))
	code := r.mountCSI(t.Context(), []string{waitingVolume, t.TempDir(), "-o", "timeout=50ms,socket=" + r.socket})
	if want := "not mounted after 50ms: driver nfs.example.com is not registered\n"; code != mountFailed || !strings.HasSuffix(r.stderr.String(), want) {
		t.Errorf("exit code %d: %s", code, r.stderr.String())
	}
}

// A directory that is not there is found before the daemon is asked for a volume.
func TestAMissingDirectoryIsFoundFirst(t *testing.T) {
	r := newRig(t, mounted(fixed))
	dir := filepath.Join(t.TempDir(), "nope")
	code := r.mountCSI(t.Context(), []string{waitingVolume, dir, "-o", "timeout=1h,socket=" + r.socket})
	if said := r.stderr.String(); code != mountFailed || !strings.Contains(said, "the directory does not exist: mkdir -p "+dir) {
		t.Errorf("exit code %d: %s", code, said)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.stderr.Reset()
	code = r.mountCSI(t.Context(), []string{waitingVolume, file, "-o", "timeout=1h,socket=" + r.socket})
	if said := r.stderr.String(); code != mountFailed || !strings.Contains(said, "is no directory") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// At a boot Nomad's client may start before the daemon: the plugin waits for its socket, and then says that there is none.
func TestNomadWaitsForTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		absent := fmt.Errorf("%w: dial", client.ErrNoDaemon)
		err := awaitDaemon(t.Context(), func(context.Context) error {
			if asked++; asked < 5 {
				return absent
			}
			return nil
		})
		if err != nil || asked != 5 {
			t.Errorf("%d attempts, %v", asked, err)
		}
		begun := time.Now()
		if err := awaitDaemon(t.Context(), func(context.Context) error { return absent }); !errors.Is(err, client.ErrNoDaemon) {
			t.Errorf("without a daemon: %v", err)
		}
		if waited := time.Since(begun); waited != daemonPatience {
			t.Errorf("gave up after %s", waited)
		}
		denied := fmt.Errorf("%w: %w", client.ErrNoDaemon, fs.ErrPermission)
		begun = time.Now()
		if err := awaitDaemon(t.Context(), func(context.Context) error { return denied }); err != nil || time.Since(begun) != 0 {
			t.Errorf("a socket of another user is waited for: %v", err)
		}
	})
}
