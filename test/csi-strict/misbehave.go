package csistrict

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that rawCodec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// misbehave makes a call as f says; the zero Fault makes it correctly.
func (d *Driver) misbehave(c *call, f Fault, handler grpc.UnaryHandler) (any, error) {
	if err := wait(c.ctx, f); err != nil {
		return nil, err
	}
	if f.Crash == CrashBefore {
		crash()
	}
	resp, err := d.effect(c, f, handler)
	if f.Crash == CrashAfter {
		crash()
	}
	if f.Drop {
		d.conns.drop()
		return nil, status.Error(codes.Unavailable, "dropped")
	}
	switch f.Garbage {
	case GarbageHuge:
		return raw(bytes.Repeat([]byte{0x0a, 0x01, 'x'}, 4<<20)), nil
	case GarbageBytes:
		return raw("\xff\xff\xff\xff garbage"), nil
	}
	if f.Code != 0 {
		return nil, status.Error(codes.Code(f.Code), cmp.Or(f.Message, "told to fail by "+f.ID))
	}
	return resp, err
}

// wait waits for the fault's delay.
func wait(ctx context.Context, f Fault) error {
	if f.Delay == 0 {
		return nil
	}
	timer := time.NewTimer(f.delay())
	defer timer.Stop()
	if f.IgnoreCancel {
		<-timer.C
		return nil
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// crash ends the process at once, as a real crash would.
func crash() { os.Exit(2) }

// effect does what the call asks for, or what f makes of it.
func (d *Driver) effect(c *call, f Fault, handler grpc.UnaryHandler) (any, error) {
	switch f.Effect {
	case EffectNone:
		return empty(c), nil
	case EffectLate:
		life, release := d.hold(c)
		d.late.Go(func() {
			defer release()
			<-time.After(time.Duration(f.Late) * time.Millisecond)
			if _, err := handler(life, c.req); err != nil {
				d.log.Warn("late effect failed", "call", c.name, "volume", c.volume, "err", err)
			}
		})
		return empty(c), nil
	case EffectPartial:
		return empty(c), os.MkdirAll(c.path, 0o750)
	case EffectSymlink:
		if err := os.Remove(c.path); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		return empty(c), os.Symlink(f.Path, c.path)
	case EffectForeign:
		return empty(c), bindDir(d.dataDir(c.volume), f.Path)
	}
	resp, err := handler(c.ctx, c.req)
	if err != nil {
		return resp, err
	}
	switch f.Effect {
	case EffectDouble:
		err = unix.Mount(c.path, c.path, "", unix.MS_BIND, "")
	case EffectSetuid:
		err = setuid(c.path)
	}
	return resp, err
}

// hold keeps the volume of c busy after c was answered, until release is called.
func (d *Driver) hold(c *call) (life context.Context, release func()) {
	life = context.WithoutCancel(c.ctx)
	gone, cancel := context.WithCancel(life)
	cancel() // no caller waits any more, so calls that arrive meanwhile are no breach
	held := *c
	held.ctx = gone
	d.mu.Lock()
	defer d.mu.Unlock()
	d.judge.inFlight[c.flight()] = &held
	return life, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.judge.inFlight, c.flight())
	}
}

// setuid puts a setuid-root program, executable by all users, and a device into a volume.
func setuid(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "setuid"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(dir, "setuid"), 0o755|os.ModeSetuid); err != nil {
		return err
	}
	err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0)))
	if err != nil && err != unix.EEXIST {
		return fmt.Errorf("make a device: %w", err)
	}
	return nil
}

// empty is the answer to a call that returns nothing of interest.
func empty(c *call) any {
	switch c.name {
	case "NodeStageVolume":
		return &csi.NodeStageVolumeResponse{}
	case "NodeUnstageVolume":
		return &csi.NodeUnstageVolumeResponse{}
	case "NodePublishVolume":
		return &csi.NodePublishVolumeResponse{}
	case "NodeUnpublishVolume":
		return &csi.NodeUnpublishVolumeResponse{}
	case "NodeExpandVolume":
		return &csi.NodeExpandVolumeResponse{}
	case "ControllerPublishVolume":
		return &csi.ControllerPublishVolumeResponse{}
	case "ControllerUnpublishVolume":
		return &csi.ControllerUnpublishVolumeResponse{}
	}
	return raw("")
}

// raw is an answer that is sent as it is.
type raw []byte

// rawCodec is gRPC's own codec, except for raw answers.
type rawCodec struct{}

// Name implements encoding.CodecV2: to the caller it is the ordinary codec.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}
