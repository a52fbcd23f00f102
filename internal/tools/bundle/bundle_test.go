package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNothingThatLooksLikeASecretIsInABundle(t *testing.T) {
	for text, want := range map[string]string{
		"traces-endpoint: https://ann:pa55@host:1/x":                            "traces-endpoint: https://LEFT-OUT@host:1/x",
		"mount -o user=ann,password=pa55,vers=3 //h/s":                          "mount -o user=ann,password=LEFT-OUT,vers=3 //h/s",
		"GET /x?access_token=pa55&y=1":                                          "GET /x?access_token=LEFT-OUT&y=1",
		"Bearer eyJhbGciOiJub25lIn0.eyJhIjoxfQ.c2lnbmF0dXJl.":                   "Bearer LEFT-OUT.",
		"-----BEGIN EC PRIVATE KEY-----\npa55\n-----END EC PRIVATE KEY-----\nx": "LEFT-OUT\nx",
		`mount -o password="pa55" x`:                                            `mount -o password=LEFT-OUT x`,
		`mount -o password='pa 55' x`:                                           `mount -o password=LEFT-OUT x`,
		`{"error": "password=\"pa55 pa55\", so"}`:                               `{"error": "password=LEFT-OUT\", so"}`,
		`{"e": "-----BEGIN PRIVATE KEY-----\npa55pa55…"}`:                       `{"e": "LEFT-OUT…"}`,
		// Text that is no secret stays.
		`{"a": "password=", "b": "c"}`:                   `{"a": "password=", "b": "c"}`,
		`"stageSecret": {"name": "login"}`:               `"stageSecret": {"name": "login"}`,
		"because secret default/login: not found":        "because secret default/login: not found",
		`csi_operations_seconds{driver_name="d"} 1`:      `csi_operations_seconds{driver_name="d"} 1`,
		"unix:///run/x.sock, user@host, http://host/a@b": "unix:///run/x.sock, user@host, http://host/a@b",
	} {
		var b bytes.Buffer
		at := time.Unix(1, 0)
		if err := Write(&b, "top", at, []File{{Name: "d/f", Data: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(z)
		h, err := r.Next()
		if err != nil || h.Name != "top/d/f" || !h.ModTime.Equal(at) || h.Mode != 0o600 {
			t.Fatalf("%+v, %v", h, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
		if h, err := r.Next(); err != io.EOF {
			t.Errorf("one file too many: %v, %v", h, err)
		}
	}
}

func TestOthersOwnWordsAreLeftOut(t *testing.T) {
	got, err := JSON(map[string]any{"items": []any{map[string]any{
		"spec": map[string]any{
			"handle": "v", "context": map[string]string{"server": "10.0.0.5"}, "mountFlags": []string{"pw=x"},
			"config": map[string]any{"a": []any{"x", 1}},
		},
		"publishContext": map[string]string{"lun": "7"}, "mountID": uint64(1<<63 + 1), "ready": true,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "items": [
    {
      "mountID": 9223372036854775809,
      "publishContext": {
        "lun": "LEFT-OUT"
      },
      "ready": true,
      "spec": {
        "config": {
          "a": [
            "LEFT-OUT",
            1
          ]
        },
        "context": {
          "server": "LEFT-OUT"
        },
        "handle": "v",
        "mountFlags": [
          "LEFT-OUT"
        ]
      }
    }
  ]
}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	if _, err := JSON(func() {}); err == nil {
		t.Error("what is no JSON is no error")
	}
}

func TestMountsAreOursAndWithoutOptionsThatMayBeSecret(t *testing.T) {
	const table = `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:40 / /root/pods/u/volumes/x rw,nosuid shared:5 - cifs //h/s rw,vers=3.0,username=ann,pass=pa55,uid=0,forceuid
31 21 0:41 / /rooted rw - tmpfs t rw
32 21 7:0 / /root rw - ext4 /dev/loop0 rw
short
`
	got, err := Mounts(strings.NewReader(table), "/root/", "/state")
	const want = `30 21 0:40 / /root/pods/u/volumes/x rw,nosuid shared:5 - cifs //h/s rw,vers=3.0,username=LEFT-OUT,pass=LEFT-OUT,uid=0,forceuid
32 21 7:0 / /root rw - ext4 /dev/loop0 rw
`
	if d := cmp.Diff(want, string(got)); err != nil || d != "" {
		t.Error(err, d)
	}
}
