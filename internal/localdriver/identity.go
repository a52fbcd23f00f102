package localdriver

import (
	"context"
	"runtime/debug"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identityServer struct {
	csi.UnimplementedIdentityServer
	driver *Driver
}

// GetPluginInfo returns the driver's name (CSI 1.13 GetPluginInfo).
func (s *identityServer) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: s.driver.name, VendorVersion: vendorVersion()}, nil
}

// vendorVersion returns the version of this program.
func vendorVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// GetPluginCapabilities returns what the driver has in addition to the Node service.
func (s *identityServer) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		serviceCapability(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		serviceCapability(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE),
		serviceCapability(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		serviceCapability(csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}}, nil
}

func serviceCapability(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
	return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
}

// Probe reports that the driver is ready, as it is once New has returned.
func (s *identityServer) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
