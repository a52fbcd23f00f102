package localdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// ErrName means that a driver's name is invalid.
var ErrName = errors.New("not a valid driver name")

// NameOf waits for the CSI driver at a socket and returns its name.
func NameOf(ctx context.Context, endpoint string) (string, error) {
	conn, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("reach the driver at %s: %w", endpoint, err)
	}
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("ask the driver at %s for its name: %w", endpoint, err)
	}
	if info.GetName() == "" || strings.ContainsAny(info.GetName(), "/\x00") {
		return "", fmt.Errorf("the driver at %s calls itself %q: %w", endpoint, info.GetName(), ErrName)
	}
	return info.GetName(), nil
}

// CheckNode returns an error that says what to register if the driver at a socket serves no Node service, as the
// controller part of a driver in two parts does not.
func CheckNode(ctx context.Context, endpoint string) error {
	conn, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach the driver at %s: %w", endpoint, err)
	}
	defer conn.Close()
	_, err = csi.NewNodeClient(conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{}, grpc.WaitForReady(true))
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%s: %w: if it is the controller part of a driver, register the socket of the node part: "+
			"csi-volmgr driver register SOCKET --controller=%s", endpoint, errNoNode, endpoint)
	}
	return nil // any other fault is the registration's to tell
}

var errNoNode = errors.New("no Node service is served here")
