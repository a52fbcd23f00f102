package node

import (
	"context"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: none, volumeMounts: [{name: d, mountPath: /d, subPath: part}]}]
  volumes: [{name: d, emptyDir: {}}]
`

func config(t *testing.T, socket string) Config {
	dir := t.TempDir()
	return Config{
		Root: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"), Name: "here", Socket: socket, Version: "agent 7",
		Logger: slog.New(slog.DiscardHandler),
	}
}

// What the API of an embedded node says is what its methods say.
func TestAnEmbeddedNodeServesItsAPI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	n, err := New(config(t, socket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()

	objects, err := Decode("pod.yaml", []byte(pod))
	if err != nil || len(objects) != 1 {
		t.Fatal(objects, err)
	}
	web := objects[0].(*corev1.Pod)
	volumes, err := n.MountPod(ctx, web)
	if err != nil {
		t.Fatal(err)
	}
	<-n.Started()
	api := client.New(socket)
	defer api.Close()
	if v, err := api.Version(ctx); err != nil || v.Version != "agent 7" || v.Node != "here" {
		t.Errorf("version: %+v, %v", v, err)
	}
	if pods, err := api.Pods(ctx); err != nil || len(pods) != 1 || !pods[0].Ready {
		t.Errorf("pods: %+v, %v", pods, err)
	}
	mounts, err := n.ContainerMounts(ctx, Container{Namespace: "default", Pod: "web", Name: "c"})
	if err != nil || len(mounts) != 1 || mounts[0].SubPath != "part" || mounts[0].HostPath == volumes["d"].HostPath {
		t.Errorf("mounts: %+v, %v", mounts, err)
	}
	if err := n.UnmountPod(ctx, web); err != nil {
		t.Error(err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A second node with the socket of the first fails, and gives its root and its journal free.
func TestANodeWhoseSocketIsTakenEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	first, err := New(config(t, socket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	api := client.New(socket)
	defer api.Close()
	<-first.Started()

	c := config(t, socket)
	second, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("a second node on a socket: %v", err)
	}
	again, err := New(c)
	if err != nil {
		t.Fatalf("what the second node took is not free: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := api.Version(ctx); err != nil {
		t.Errorf("the first node: %v", err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAWrongModeIsNamed(t *testing.T) {
	c := config(t, "")
	c.SELinuxMount = "sometimes"
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), `SELinuxMount: found "sometimes", want one of ["auto"`) {
		t.Error(err)
	}
}

// Each field of the configuration reaches the node.
func TestEachFieldReachesTheNode(t *testing.T) {
	elsewhere := map[string]string{"Alive": "NodeAlive", "Socket": "", "Version": ""}
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		to, renamed := elsewhere[name]
		switch {
		case !renamed:
			to = name
		case to == "":
			continue // of the API
		}
		var c Config
		set(t, reflect.ValueOf(&c).Elem().Field(i))
		if got := reflect.ValueOf(c.wired()).FieldByName(to); !got.IsValid() || got.IsZero() {
			t.Errorf("%s is not in the node's configuration", name)
		}
	}
}

type tokens struct{ csiclient.TokenSource }

// set gives a field a value that is not zero.
func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Struct:
		set(t, v.Field(0))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
	case reflect.Interface:
		for _, of := range []any{tokens{}, prometheus.NewRegistry()} {
			if reflect.TypeOf(of).Implements(v.Type()) {
				v.Set(reflect.ValueOf(of))
			}
		}
	default:
		t.Fatalf("no value of kind %s", v.Kind())
	}
}
