package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images is the image service of a container runtime, which is asked only what a
// volume needs: whether it has an image, and to get it. It may be used by many
// goroutines.
type Images struct {
	endpoint string
	conn     *grpc.ClientConn
	service  runtimev1.ImageServiceClient
}

// NewImages returns the service at an endpoint, as unix:///run/crio/crio.sock;
// nothing is connected before it is asked.
func NewImages(endpoint string) (*Images, error) {
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("image service %s: %w", endpoint, err)
	}
	return &Images{endpoint, conn, runtimev1.NewImageServiceClient(conn)}, nil
}

// Close gives up the connection.
func (i *Images) Close() error { return i.conn.Close() }

// Present returns what the runtime calls the image of a reference; "" where it
// has none.
func (i *Images) Present(ctx context.Context, reference string) (id string, err error) {
	a, err := i.service.ImageStatus(ctx, &runtimev1.ImageStatusRequest{Image: spec(reference)})
	if err != nil {
		return "", fmt.Errorf("image service %s: ImageStatus: %w", i.endpoint, err)
	}
	return a.GetImage().GetId(), nil
}

// Pull has the runtime get the image of a reference, with the credentials that
// it has itself, and returns what it calls it.
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
