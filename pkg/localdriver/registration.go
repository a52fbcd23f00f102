package localdriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// supportedVersions is what CSI drivers tell the plugin registration protocol
// (node-driver-registrar): not the version of CSI.
var supportedVersions = []string{"1.0.0"}

// RegisterConfig says where to register.
type RegisterConfig struct {
	// Dir is the directory of registration sockets, plugins_registry.
	Dir string
	// Endpoint is the path of the CSI socket as the node manager sees it.
	Endpoint string
}

// Register serves the plugin registration protocol on <Dir>/<name>-reg.sock
// until ctx ends, and removes the socket then. It waits until Serve answers, so
// that whoever sees the registration finds the driver there.
func (d *Driver) Register(ctx context.Context, c RegisterConfig) error {
	endpoint, err := socketPath(c.Endpoint)
	if err != nil {
		return fmt.Errorf("register local driver: %w", err)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("register local driver: %w", err)
	}
	select {
	case <-d.serving:
	case <-ctx.Done():
		return nil
	}
	l, err := listen(ctx, filepath.Join(dir, d.name+"-reg.sock"))
	if err != nil {
		return fmt.Errorf("register local driver: %w", err)
	}
	srv := grpc.NewServer()
	registerapi.RegisterRegistrationServer(srv, &registrationServer{driver: d, endpoint: endpoint})
	return serve(ctx, srv, l)
}

type registrationServer struct {
	registerapi.UnimplementedRegistrationServer
	driver   *Driver
	endpoint string
}

func (s *registrationServer) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: s.driver.name, Endpoint: s.endpoint, SupportedVersions: supportedVersions,
	}, nil
}

func (s *registrationServer) NotifyRegistrationStatus(_ context.Context, st *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if st.GetPluginRegistered() {
		s.driver.log.Info("registered with the node manager")
	} else {
		s.driver.log.Error("the node manager refused the driver", "err", errors.New(st.GetError()))
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
