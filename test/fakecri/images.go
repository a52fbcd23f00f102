package fakecri

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// images is the part of the image service that looks images up and pulls them.
type images struct {
	runtimev1.UnimplementedImageServiceServer
	r *Runtime
}

// Registry sets the images that the runtime can pull, by reference.
func (r *Runtime) Registry(reference, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registry[reference] = id
}

// Pulls returns the references that the runtime was asked to pull, in order.
func (r *Runtime) Pulls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

// ImageStatus implements runtimev1.ImageServiceServer.
func (i images) ImageStatus(_ context.Context, q *runtimev1.ImageStatusRequest) (*runtimev1.ImageStatusResponse, error) {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	if !slices.Contains(i.r.pulls, q.Image.Image) {
		return &runtimev1.ImageStatusResponse{}, nil
	}
	return &runtimev1.ImageStatusResponse{Image: &runtimev1.Image{Id: i.r.registry[q.Image.Image]}}, nil
}

// PullImage implements runtimev1.ImageServiceServer.
func (i images) PullImage(_ context.Context, q *runtimev1.PullImageRequest) (*runtimev1.PullImageResponse, error) {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	id, ok := i.r.registry[q.Image.Image]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "%s is in no registry", q.Image.Image)
	}
	i.r.pulls = append(i.r.pulls, q.Image.Image)
	return &runtimev1.PullImageResponse{ImageRef: id}, nil
}
