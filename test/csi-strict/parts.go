package csistrict

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Part is what an endpoint of the driver serves besides the Identity service.
type Part struct {
	Node, Controller bool
	// Denied: the Controller service is served, and answers every call with UNAUTHENTICATED,
	// like that of a node plugin without its cloud's token.
	Denied bool
	// Name is the name that the endpoint gives; "" means the driver's.
	Name string
	// Options are those of the server besides the driver's own.
	Options []grpc.ServerOption
}

// ServePart answers calls to a part of the driver until ctx ends. The parts share the driver's
// state and its judge. It closes the listener, and the connections that this part has.
func (d *Driver) ServePart(ctx context.Context, l net.Listener, p Part) error {
	at := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if p.Denied && strings.HasPrefix(info.FullMethod, "/csi.v1.Controller/") {
			return nil, status.Error(codes.Unauthenticated, "401 Unable to authenticate you")
		}
		return d.intercept(ctx, "", req, info, handler)
	}
	options := append([]grpc.ServerOption{
		grpc.UnaryInterceptor(at), grpc.StatsHandler(d.conns), grpc.ForceServerCodecV2(rawCodec{}),
	}, p.Options...)
	s := grpc.NewServer(options...)
	csi.RegisterIdentityServer(s, &identity{driver: d, name: p.Name})
	if p.Controller || p.Denied {
		csi.RegisterControllerServer(s, &controller{driver: d})
	}
	if p.Controller {
		csi.RegisterGroupControllerServer(s, &groupController{driver: d})
		csi.RegisterSnapshotMetadataServer(s, &metadata{driver: d})
	}
	if p.Node {
		csi.RegisterNodeServer(s, &node{driver: d})
	}
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err := s.Serve(&conns{Listener: l, all: d.conns})
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}
