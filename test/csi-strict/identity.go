package csistrict

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// able are the driver's abilities unless a script changes them, by CSI name.
var able = []string{
	"CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES", "EXPAND_VOLUME", "SINGLE_NODE_MULTI_WRITER",
	"CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS", "CLONE_VOLUME", metadataService,
	"STAGE_UNSTAGE_VOLUME", "GET_VOLUME_STATS", "ONLINE",
	groupService, groupSnapshots,
	byController + volumeHealth,
}

// can reports whether the driver has an ability.
func (s Script) can(name string) bool {
	if name == "ONLINE" && s.can("OFFLINE") {
		return false
	}
	return !slices.Contains(s.Without, name) && (slices.Contains(able, name) || slices.Contains(s.With, name))
}

// The abilities of groups: the service, and its only ability.
const (
	groupService   = "GROUP_CONTROLLER_SERVICE"
	groupSnapshots = "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"
)

// groups reports whether the driver makes snapshots of groups.
func (s Script) groups() bool { return s.can(groupService) && s.can(groupSnapshots) }

// The Controller and the Node service share some ability names. With these a script gives one to one service.
const (
	byController = "CONTROLLER_"
	byNode       = "NODE_"
)

// The abilities of two services.
const (
	expansion    = "EXPAND_VOLUME"
	volumeHealth = "GET_VOLUME_HEALTH"
)

// serves reports whether the driver has an ability in the service, possibly only there.
func (s Script) serves(service, name string) bool {
	return (s.can(name) || s.can(service+name)) && !slices.Contains(s.Without, service+name)
}

// nodeCan are the abilities of the Node service.
func (s Script) nodeCan() (types []csi.NodeServiceCapability_RPC_Type) {
	for number, name := range csi.NodeServiceCapability_RPC_Type_name {
		if s.serves(byNode, name) {
			types = append(types, csi.NodeServiceCapability_RPC_Type(number))
		}
	}
	slices.Sort(types)
	return types
}

// controllerCan are the abilities of the Controller service.
func (s Script) controllerCan() (types []csi.ControllerServiceCapability_RPC_Type) {
	for number, name := range csi.ControllerServiceCapability_RPC_Type_name {
		if s.serves(byController, name) {
			types = append(types, csi.ControllerServiceCapability_RPC_Type(number))
		}
	}
	slices.Sort(types)
	return types
}

type identity struct {
	csi.UnimplementedIdentityServer
	driver *Driver
	name   string // instead of the driver's, if it is set
}

// GetPluginInfo implements the Identity service.
func (s *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: cmp.Or(s.name, s.driver.cfg.Name), VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements the Identity service.
func (s *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	script := s.driver.script()
	var all []*csi.PluginCapability
	if !script.NoController {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}})
	}
	if script.can(groupService) {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE},
		}})
	}
	if len(s.driver.cfg.Zones) > 0 {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS},
		}})
	}
	if script.can(metadataService) {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE},
		}})
	}
	for number, name := range csi.PluginCapability_VolumeExpansion_Type_name {
		if number != 0 && script.can(strings.ToUpper(name)) {
			all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
				VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_Type(number)},
			}})
		}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: all}, nil
}

// Probe implements the Identity service.
func (s *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
