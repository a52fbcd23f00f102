package localdriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// supportedVersions are the versions of the plugin registration protocol, which CSI drivers report
// as node-driver-registrar does. They are not versions of CSI.
var supportedVersions = []string{"1.0.0"}

// RegisterConfig says where to register.
type RegisterConfig struct {
	// Dir is the directory of registration sockets, plugins_registry.
	Dir string
	// Endpoint is the path of the CSI socket as the node manager sees it.
	Endpoint string
}

// Registration announces a CSI driver, this one or any other, to a node manager.
type Registration struct {
	RegisterConfig
	// Name is the driver's CSI name.
	Name string
	// OnResult is called with the node manager's answer: nil if it registered the driver, else why
	// it refused.
	OnResult func(refused error)
}

// Register serves the plugin registration protocol on <Dir>/<name>-reg.sock until ctx ends, and
// then removes the socket. It first waits until Serve answers, so that a node manager that sees the
// registration can reach the driver.
func (d *Driver) Register(ctx context.Context, c RegisterConfig) error {
	select {
	case <-d.serving:
	case <-ctx.Done():
		return nil
	}
	return ServeRegistration(ctx, Registration{RegisterConfig: c, Name: d.name, OnResult: func(refused error) {
		if refused == nil {
			d.log.Info("registered with the node manager")
		} else {
			d.log.Error("the node manager refused the driver", "err", refused)
		}
	}})
}

// ServeRegistration serves the plugin registration protocol for the driver at r.Endpoint, on
// <Dir>/<name>-reg.sock, until ctx ends, and then removes the socket.
func ServeRegistration(ctx context.Context, r Registration) (err error) {
	if r.Endpoint, err = unixsocket.EndpointPath(r.Endpoint); err != nil {
		return fmt.Errorf("register driver %s: %w", r.Name, err)
	}
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return fmt.Errorf("register driver %s: %w", r.Name, err)
	}
	l, err := listen(ctx, filepath.Join(dir, r.Name+"-reg.sock"))
	if err != nil {
		return fmt.Errorf("register driver %s: %w", r.Name, err)
	}
	srv := grpc.NewServer()
	registerapi.RegisterRegistrationServer(srv, &registrationServer{of: r})
	return serve(ctx, srv, l)
}

type registrationServer struct {
	registerapi.UnimplementedRegistrationServer
	of Registration
}

func (s *registrationServer) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: s.of.Name, Endpoint: s.of.Endpoint, SupportedVersions: supportedVersions,
	}, nil
}

func (s *registrationServer) NotifyRegistrationStatus(_ context.Context,
	st *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if st.GetPluginRegistered() {
		s.of.OnResult(nil)
	} else {
		s.of.OnResult(errors.New(st.GetError()))
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
