package away

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/keylock"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// verbRequest is a call of a verb as sent to a helper.
type verbRequest struct {
	Kind   state.DriverName `json:"kind"`
	Verb   string           `json:"verb"`
	Root   string           `json:"root"`
	Allow  []string         `json:"allow,omitempty"`
	Volume state.Volume     `json:"volume"`
	Pod    state.PodUID     `json:"pod"`
	Bytes  int64            `json:"bytes,omitempty"`
	Given  given            `json:"given,omitzero"`
}

// verbReply is the result of a verb as sent by a helper.
type verbReply struct {
	Bytes   int64         `json:"bytes,omitempty"`
	Failed  bool          `json:"failed,omitempty"`
	Outcome state.Outcome `json:"outcome,omitempty"`
	Call    string        `json:"call,omitempty"`
	Code    string        `json:"code,omitempty"`
	Reason  state.Reason  `json:"reason,omitempty"`
	Text    string        `json:"text,omitempty"`
	Said    []warning     `json:"said,omitempty"`
}

// warning is what a verb says besides its result.
type warning struct {
	Message string `json:"message"`
	Args    []any  `json:"args"`
}

// Driver is a kind whose verbs run in a helper. It is safe for concurrent use.
type Driver struct {
	c Config

	targets keylock.Locks // of iscsi, by name, held while a volume logs in or out
}

// Stage calls the verb.
func (d *Driver) Stage(ctx context.Context, v state.Volume) error {
	_, err := d.do(ctx, verbRequest{Verb: "Stage", Volume: v})
	return err
}

// Publish calls the verb.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := d.do(ctx, verbRequest{Verb: "Publish", Volume: v, Pod: pod})
	return err
}

// Unpublish calls the verb.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := d.do(ctx, verbRequest{Verb: "Unpublish", Volume: v, Pod: pod})
	return err
}

// Unstage calls the verb.
func (d *Driver) Unstage(ctx context.Context, v state.Volume) error {
	_, err := d.do(ctx, verbRequest{Verb: "Unstage", Volume: v})
	return err
}

// Expand calls the verb.
func (d *Driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	return d.do(ctx, verbRequest{Verb: "Expand", Volume: v, Pod: pod, Bytes: bytes})
}

func (d *Driver) do(ctx context.Context, r verbRequest) (int64, error) {
	r.Kind, r.Root, r.Allow = d.c.Kind, d.c.Layout.Root, d.c.Allow
	given, done, err := d.give(ctx, r.Verb, r.Volume)
	if err != nil {
		return 0, fmt.Errorf("volume %s: %w", r.Volume.Spec.Name, err)
	}
	defer done()
	r.Given = given
	a, err := isolate.Ask[verbReply](ctx, d.c.Helpers, string(r.Volume.ID), callVerb, r)
	for _, w := range a.Said {
		d.c.Logger.Warn(w.Message, w.Args...)
	}
	if err != nil {
		// The helper may still be running the verb, so the outcome is not known.
		return 0, &state.CallError{Outcome: state.Uncertain, Call: r.Verb, Err: err}
	}
	if a.Failed {
		return 0, &state.CallError{Outcome: a.Outcome, Call: a.Call, Code: a.Code, Reason: a.Reason, Err: errors.New(a.Text)}
	}
	return a.Bytes, nil
}

// doVerb calls a verb; it runs in the helper.
func doVerb(ctx context.Context, r verbRequest) (any, error) {
	var a verbReply
	d, err := newInHelper(r, func(message string, args ...any) { a.Said = append(a.Said, warning{message, args}) })
	if err != nil {
		return nil, err
	}
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
			Failed: true, Outcome: e.Outcome, Call: e.Call, Code: e.Code, Reason: Reason(err),
			Text: e.Err.Error(), Said: a.Said,
		}
	}
	return a, nil
}
