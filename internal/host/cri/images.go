package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images is the image service of a container runtime, for the two requests that volumes need:
// whether an image is present, and to pull it. It is safe for concurrent use.
type Images struct {
	endpoint string
	conn     *grpc.ClientConn
	service  runtimev1.ImageServiceClient
}

// NewImages returns the image service at an endpoint, such as unix:///run/crio/crio.sock. It
// connects when it is first used.
func NewImages(endpoint string) (*Images, error) {
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("image service %s: %w", endpoint, err)
	}
	return &Images{endpoint, conn, runtimev1.NewImageServiceClient(conn)}, nil
}

// Close closes the connection.
func (i *Images) Close() error { return i.conn.Close() }

// Present returns the runtime's id of an image, or "" if the image is not present.
func (i *Images) Present(ctx context.Context, reference string) (id string, err error) {
	a, err := i.service.ImageStatus(ctx, &runtimev1.ImageStatusRequest{Image: spec(reference)})
	if err != nil {
		return "", fmt.Errorf("image service %s: ImageStatus: %w", i.endpoint, err)
	}
	return a.GetImage().GetId(), nil
}

// Pull makes the runtime pull an image with the credentials that the runtime has, and returns the
// runtime's reference to it.
func (i *Images) Pull(ctx context.Context, reference string) (id string, err error) {
	a, err := i.service.PullImage(ctx, &runtimev1.PullImageRequest{Image: spec(reference)})
	if err != nil {
		return "", fmt.Errorf("image service %s: PullImage: %w", i.endpoint, err)
	}
	return a.GetImageRef(), nil
}

func spec(reference string) *runtimev1.ImageSpec {
	return &runtimev1.ImageSpec{Image: reference, UserSpecifiedImage: reference}
}
