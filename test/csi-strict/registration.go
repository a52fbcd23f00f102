package csistrict

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Register serves the plugin registration protocol at <dir>/<name>-reg.sock
// until ctx ends. endpoint is the path of the CSI socket.
func (d *Driver) Register(ctx context.Context, dir, endpoint string) error {
	l, err := listen(ctx, filepath.Join(dir, d.cfg.Name+"-reg.sock"))
	if err != nil {
		return fmt.Errorf("strict driver: register: %w", err)
	}
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, registration{info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: d.cfg.Name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"},
	}})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

type registration struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
}

// GetInfo implements the plugin registration protocol.
func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return r.info, nil
}

// NotifyRegistrationStatus implements the plugin registration protocol.
func (r registration) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}
