package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ServeHelper does a node's calls on storage in the process that [Config.Helper]
// started, until the node is gone; the process is to end when it returns.
func ServeHelper(ctx context.Context) error { return isolate.Serve(ctx, helperService()) }

// The calls of helpers besides those of pkg/mount.
const (
	callVerb = "verb"
	callOwn  = "own"
)

// helperService is all that helpers do, and goroutines where there are none.
func helperService() isolate.Service {
	s := mount.Service()
	s.Handlers = maps.Clone(s.Handlers)
	s.Handlers[callVerb], s.Handlers[callOwn] = doVerb, doOwn
	images := image.Helper()
	maps.Copy(s.Handlers, images.Handlers)
	s.Errors = slices.Concat(s.Errors, images.Errors)
	s.Memory = images.Memory
	return s
}

func (n *Node) newHelpers() *isolate.Pool {
	return isolate.New(isolate.Config{
		Command: n.cfg.Helper, Service: helperService(), Logger: n.log,
		OnReturn: n.retryAt,
	})
}

// retryAt ends the pauses of the volume that a call has returned for after all:
// key is its id, or one of its paths.
func (n *Node) retryAt(key string) {
	key = mount.PathOf(key)
	for _, v := range n.manager.Volumes() {
		at := string(v.Volume.ID) == key || v.Volume.Spec.StagePath == key
		for _, m := range v.Volume.Mounts {
			at = at || m.Target == key
		}
		if at {
			n.manager.RetryNow(v.Volume.ID)
		}
	}
}

// Helpers returns what the node's helpers are at.
func (n *Node) Helpers() isolate.Stats { return n.helpers.Stats() }

// away is a built-in kind whose verbs are called in a helper: it asks storage by
// more than a mount and an unmount. What it is made with has to be plain data.
func (n *Node) away(kind state.DriverName) manager.Driver {
	return awayDriver{kind: kind, allow: n.cfg.HostPaths, layout: n.layout, helpers: n.helpers}
}

// awayKind makes the driver of a kind in a helper.
func awayKind(r verbRequest) (manager.Driver, error) {
	kernel := mount.New(r.Root).AtOnce()
	layout := state.Layout{Root: r.Root}
	switch r.Kind {
	case hostpath.Kind:
		return hostpath.New(hostpath.Config{Layout: layout, Kernel: kernel, Allow: r.Allow}), nil
	case local.Kind:
		return local.New(local.Config{Layout: layout, Kernel: kernel, Allow: r.Allow, Run: new(program.Runner).Run}), nil
	}
	return nil, fmt.Errorf("no helper for kind %s", r.Kind)
}

// verbRequest is a call of a verb on its way to a helper.
type verbRequest struct {
	Kind   state.DriverName `json:"kind"`
	Verb   string           `json:"verb"`
	Root   string           `json:"root"`
	Allow  []string         `json:"allow,omitempty"`
	Volume state.Volume     `json:"volume"`
	Pod    state.PodUID     `json:"pod"`
	Bytes  int64            `json:"bytes,omitempty"`
}

// verbReply is how it ended.
type verbReply struct {
	Bytes   int64         `json:"bytes,omitempty"`
	Failed  bool          `json:"failed,omitempty"`
	Outcome state.Outcome `json:"outcome,omitempty"`
	Call    string        `json:"call,omitempty"`
	Code    string        `json:"code,omitempty"`
	Reason  state.Reason  `json:"reason,omitempty"`
	Text    string        `json:"text,omitempty"`
}

type awayDriver struct {
	kind    state.DriverName
	allow   []string
	layout  state.Layout
	helpers *isolate.Pool
}

// Stage implements manager.Driver.
func (d awayDriver) Stage(ctx context.Context, v state.Volume) error {
	_, err := d.do(ctx, verbRequest{Verb: "Stage", Volume: v})
	return err
}

// Publish implements manager.Driver.
func (d awayDriver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := d.do(ctx, verbRequest{Verb: "Publish", Volume: v, Pod: pod})
	return err
}

// Unpublish implements manager.Driver.
func (d awayDriver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := d.do(ctx, verbRequest{Verb: "Unpublish", Volume: v, Pod: pod})
	return err
}

// Unstage implements manager.Driver.
func (d awayDriver) Unstage(ctx context.Context, v state.Volume) error {
	_, err := d.do(ctx, verbRequest{Verb: "Unstage", Volume: v})
	return err
}

// Expand implements manager.Driver.
func (d awayDriver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	return d.do(ctx, verbRequest{Verb: "Expand", Volume: v, Pod: pod, Bytes: bytes})
}

func (d awayDriver) do(ctx context.Context, r verbRequest) (int64, error) {
	r.Kind, r.Root, r.Allow = d.kind, d.layout.Root, d.allow
	request, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	reply, err := d.helpers.Do(ctx, string(r.Volume.ID), callVerb, request)
	if err != nil {
		// It may go on in the helper, so this is not the end of it.
		return 0, &state.CallError{Outcome: state.Uncertain, Call: r.Verb, Err: err}
	}
	var a verbReply
	if err := json.Unmarshal(reply, &a); err != nil {
		return 0, err
	}
	if a.Failed {
		return 0, &state.CallError{Outcome: a.Outcome, Call: a.Call, Code: a.Code, Reason: a.Reason, Err: errors.New(a.Text)}
	}
	return a.Bytes, nil
}

// doVerb calls a verb, in the helper.
func doVerb(ctx context.Context, request []byte) ([]byte, error) {
	var r verbRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	d, err := awayKind(r)
	if err != nil {
		return nil, err
	}
	var a verbReply
	switch r.Verb {
	case "Stage":
		err = d.Stage(ctx, r.Volume)
	case "Publish":
		err = d.Publish(ctx, r.Volume, r.Pod)
	case "Unpublish":
		err = d.Unpublish(ctx, r.Volume, r.Pod)
	case "Unstage":
		err = d.Unstage(ctx, r.Volume)
	case "Expand":
		a.Bytes, err = d.Expand(ctx, r.Volume, r.Pod, r.Bytes)
	default:
		return nil, fmt.Errorf("no verb %q", r.Verb)
	}
	if err != nil {
		e := state.AsCallError(r.Verb, err)
		a = verbReply{
			Failed: true, Outcome: e.Outcome, Call: e.Call, Code: e.Code, Reason: reasonOf(err),
			Text: e.Err.Error(),
		}
	}
	return json.Marshal(a)
}

// ownRequest is a mount that is to be given to its group.
type ownRequest struct {
	Root   string         `json:"root"`
	Volume state.VolumeID `json:"volume"`
	Mount  state.Mount    `json:"mount"`
}

// doOwn gives a mount to its group, in the helper.
func doOwn(ctx context.Context, request []byte) ([]byte, error) {
	var r ownRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	root, err := os.Open(r.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return nil, own(ctx, root, r.Mount)
}

// ownAway has a helper do so.
func ownAway(ctx context.Context, helpers *isolate.Pool, r ownRequest) error {
	request, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = helpers.Do(ctx, string(r.Volume), callOwn, request)
	return err
}
