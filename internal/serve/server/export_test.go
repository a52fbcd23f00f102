package server

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Names for the tests that use package client, and so cannot be in this package.

type Backend = backend

var (
	NewBackend       = newBackend
	AllFine          = allFine
	StageUnavailable = stageUnavailable
	ClaimUnused      = claimUnused
)

// Serve serves b and returns the socket and a function that stops it.
func Serve(t *testing.T, b *Backend) (socket string, stop func() error) {
	t.Helper()
	cfg := config(t, b)
	_, stop = start(t, cfg)
	return cfg.Socket, stop
}

// ServeStorage serves b with a storage; nil stands for a node in a cluster.
func ServeStorage(t *testing.T, b *Backend, s Storage) (socket string, stop func() error) {
	t.Helper()
	cfg := config(t, b)
	cfg.Storage = s
	_, stop = start(t, cfg)
	return cfg.Socket, stop
}

func (b *backend) Set(change func(f *Facts)) { b.set(change) }

// Serve makes r answer requests about containers.
func (b *backend) Serve(r Containers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers = r
}

// Fail makes every verb fail with err.
func (b *backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// Asked returns what was applied and deleted.
func (b *backend) Asked() ([]Manifest, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applied, b.deleted
}

// The API's form of pods, volumes and drivers.

func ShownPods(all []manager.PodStatus) []PodStatus          { return each(all, podStatus) }
func ShownVolumes(all []manager.VolumeStatus) []VolumeStatus { return each(all, volumeStatus) }
func ShownDrivers(all []manager.DriverStatus) []DriverStatus { return each(all, driverStatus) }
