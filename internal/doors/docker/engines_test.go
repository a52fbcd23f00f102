package docker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// The engines' requests as their sources write them: moby b985e2313a86 of 2026-08 (pkg/plugins, daemon/volume/drivers) and
// podman c6580b4a5219 of 2026-05, 6.0 (libpod/plugin/volume_api.go), which has not changed since 4.3.
const (
	mobyHead = "POST /%s HTTP/1.1\r\nHost: plugin.moby.localhost\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n" +
		"Accept: application/vnd.docker.plugins.v1.2+json\r\nAccept-Encoding: gzip\r\n\r\n%s"
	podmanHead = "POST /%s HTTP/1.1\r\nHost: plugin\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n" +
		"Content-Type: application/vnd.docker.plugins.v1.1+json\r\nAccept-Encoding: gzip\r\n\r\n%s"
)

// play sends requests on one connection, as engines do, and returns the answers.
func play(t *testing.T, socket, head string, requests [][2]string) (answers []string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	from := bufio.NewReader(conn)
	for _, r := range requests {
		if _, err := fmt.Fprintf(conn, head, r[0], len(r[1]), r[1]); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			return append(answers, "none")
		}
		b, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, fmt.Sprintf("%d %s", answer.StatusCode, strings.TrimSpace(string(b))))
	}
	return answers
}

// The life of a volume as dockerd asks for it: for docker compose (v5), which creates each volume through the engine with its
// driver_opts as texts and without a driver_opts with null; and for a container with volume-subpath, whose subdirectory
// dockerd itself looks for below the mountpoint: the plugin is asked as for any other, and once more if it is missing.
func TestRequestsOfNewerDocker(t *testing.T) {
	exists, opts := false, []map[string]string{}
	v := &volumes{
		create: func(r named.Request) error {
			exists, opts = true, append(opts, r.Options)
			return nil
		},
		get: func(_ context.Context, name string) (named.View, error) {
			if !exists {
				return named.View{}, fmt.Errorf("volume %s: %w", name, named.ErrNotFound)
			}
			return named.View{Name: name}, nil
		},
		list:   func() ([]named.View, error) { return []named.View{{Name: "shop_db"}}, nil },
		remove: func(string) error { return nil },
		mount:  func(_ context.Context, name string) (string, error) { return "/m/" + name, nil },
	}
	_, socket, _ := serve(t, v)
	const id = "4f66ad9a0b2e4c7b9d3c"
	got := play(t, socket, mobyHead, [][2]string{
		{"Plugin.Activate", ""},
		{"VolumeDriver.Get", `{"Name":"shop_db"}` + "\n"},
		{"VolumeDriver.Create", `{"Name":"shop_db","Opts":{"mode":"0770","size":"1Gi"}}` + "\n"},
		{"VolumeDriver.Create", `{"Name":"shop_cache","Opts":null}` + "\n"},
		{"VolumeDriver.Capabilities", ""},
		{"VolumeDriver.Get", `{"Name":"shop_db"}` + "\n"},
		{"VolumeDriver.Mount", `{"Name":"shop_db","ID":"` + id + `"}` + "\n"},
		{"VolumeDriver.Unmount", `{"Name":"shop_db","ID":"` + id + `"}` + "\n"},
		{"VolumeDriver.Path", `{"Name":"shop_db"}` + "\n"},
		{"VolumeDriver.List", ""},
		{"VolumeDriver.Remove", `{"Name":"shop_db"}` + "\n"},
	})
	want := []string{
		`200 {"Implements":["VolumeDriver"]}`, `500 {"Err":"no such volume: shop_db"}`, `200 {}`, `200 {}`,
		`200 {"Capabilities":{"Scope":"local"}}`, got[5], `200 {"Mountpoint":"/m/shop_db"}`, `200 {}`, `200 {"Mountpoint":""}`,
		`200 {"Volumes":[{"Name":"shop_db"}]}`, `200 {}`,
	}
	if !reflect.DeepEqual(got, want) || !strings.HasPrefix(got[5], `200 {"Volume":{"Name":"shop_db"`) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if want := []map[string]string{{"mode": "0770", "size": "1Gi"}, nil}; !reflect.DeepEqual(opts, want) {
		t.Errorf("options %v, want %v", opts, want)
	}
}

// podman asks whether the plugin is there before each request, leaves out empty options, and mounts under one id.
func TestRequestsOfNewerPodman(t *testing.T) {
	var opts map[string]string
	v := &volumes{
		create: func(r named.Request) error {
			opts = r.Options
			return nil
		},
		get: func(_ context.Context, name string) (named.View, error) {
			return named.View{}, fmt.Errorf("volume %s: %w", name, named.ErrNotFound)
		},
		list:   func() ([]named.View, error) { return nil, nil },
		remove: func(string) error { return nil },
		mount:  func(_ context.Context, name string) (string, error) { return "/m/" + name, nil },
	}
	_, socket, _ := serve(t, v)
	const id = "2f73349cfc4630255319c6c8dfc1b46a8996ace9d14d8e07563b165915918ec2"
	got := play(t, socket, podmanHead, [][2]string{
		{"Plugin.Activate", ""},
		{"VolumeDriver.Get", `{"Name":"db"}`},
		{"VolumeDriver.Create", `{"Name":"db","Opts":{"GID":"998","UID":"999","o":"class=standard,size=10Gi"}}`},
		{"VolumeDriver.Create", `{"Name":"plain"}`},
		{"VolumeDriver.List", ""},
		{"VolumeDriver.Mount", `{"Name":"db","ID":"` + id + `"}`},
		{"VolumeDriver.Unmount", `{"Name":"db","ID":"` + id + `"}`},
		{"VolumeDriver.Remove", `{"Name":"db"}`},
	})
	want := []string{
		`200 {"Implements":["VolumeDriver"]}`, `500 {"Err":"no such volume: db"}`, `200 {}`, `200 {}`, `200 {"Volumes":[]}`,
		`200 {"Mountpoint":"/m/db"}`, `200 {}`, `200 {}`,
	}
	if !reflect.DeepEqual(got, want) || opts != nil {
		t.Errorf("got  %q, options %v\nwant %q", got, opts, want)
	}
}

// dockerd repeats a request whose connection broke, and its body is gone. An answer to Get would make it forget the volume.
func TestARepeatedGetWithoutItsBodyIsNotAnswered(t *testing.T) {
	v := &volumes{get: func(context.Context, string) (named.View, error) { return named.View{}, named.ErrNotFound }}
	_, socket, _ := serve(t, v)
	if got := play(t, socket, mobyHead, [][2]string{{"VolumeDriver.Get", ""}}); got[0] != "none" {
		t.Errorf("answered %q", got)
	}
	if got := play(t, socket, mobyHead, [][2]string{{"VolumeDriver.Mount", ""}}); !strings.Contains(got[0], "field Name") {
		t.Errorf("another request is answered %q", got)
	}
}
