package wire

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
)

// oldPlugin is a CSI plugin of a version that csi-volmgr does not serve and a kubelet might.
type oldPlugin struct {
	registerapi.UnimplementedRegistrationServer
	told chan *registerapi.RegistrationStatus
}

func (oldPlugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "old.example.com", SupportedVersions: []string{"0.3.0"}}, nil
}

func (p oldPlugin) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.told <- s
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Where a kubelet watches the registration directory too, registrars hear nothing from csi-volmgr, not even a refusal.
func TestASharedRegistryIsTheKubeletsToAnswer(t *testing.T) {
	for _, shared := range []bool{true, false} {
		c := dirs(t)
		c.RegistrationDir, c.RegistrationShared = filepath.Join(filepath.Dir(c.Root), "registry"), shared
		n, stop := start(t, c)
		p := oldPlugin{told: make(chan *registerapi.RegistrationStatus, 10)}
		l, err := net.Listen("unix", filepath.Join(c.RegistrationDir, "old.sock"))
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		registerapi.RegisterRegistrationServer(s, p)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ctx := within(t)
		for {
			changed := n.registry.Changed()
			if all := n.registry.Sockets(); len(all) == 1 && all[0].State == registration.Refused {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%+v", n.registry.Sockets())
			}
		}
		if !shared {
			select {
			case status := <-p.told:
				if status.GetPluginRegistered() {
					t.Errorf("a refused plugin is told %v", status)
				}
			case <-ctx.Done():
				t.Error("a plugin of a directory of csi-volmgr's own is told nothing")
			}
		}
		stop()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if len(p.told) > 0 {
			t.Errorf("shared %v: told %v", shared, <-p.told)
		}
	}
}
