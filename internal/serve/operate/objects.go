package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/schedule"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Usage tells who uses claims and volumes.
type Usage interface {
	// Wanted names a pod of the sources that names the claim; "" if there is none.
	Wanted(claim controller.Key) string
	// InUse names what uses, or may use, the volume on this node; "" if nothing does.
	InUse(id state.VolumeID, name string) string
}

// ObjectsConfig is what Objects needs; every field but Manifests is required.
type ObjectsConfig struct {
	API        *api.Provider
	Catalog    *source.Catalog
	Controller *controller.Controller
	// Bindings gives claims volumes that already exist.
	Bindings *binding.Binder
	// Journal keeps the schedules of snapshots.
	Journal schedule.Journal
	Manager *manager.Manager
	Usage   Usage
	// Audit logs acts that may destroy data, and every other request in a file of its own.
	Audit *audit.Log
	// Manifests is the directory of manifests; "" if there is none.
	Manifests string
	// Loaded is closed once the objects applied earlier are loaded.
	Loaded <-chan struct{}
	// Silent lists the sources that have not spoken yet.
	Silent func() []string
	// SilentSources lists the names of those sources.
	SilentSources func() []string
	// Lost reports whether the journal may have lost records and no operator has accepted that.
	Lost func() bool
	// Changed returns a channel that closes at the next change of claims, volumes or inputs.
	Changed func() <-chan struct{}
	Logger  *slog.Logger
}

// Objects applies and withdraws the objects of clients (server.Objects). Any goroutine may call its
// methods.
type Objects struct {
	Bindings  *binding.Binder
	Schedules *Schedules
	// Ephemeral makes the claims of generic ephemeral volumes. It does not run where a cluster makes them.
	Ephemeral *ephemeral.Provider
	c         ObjectsConfig
	decoding  chan struct{} // holds a token while a large manifest is decoded
	// places returns where the host has a named volume mounted; set once by NewNamed.
	places atomic.Pointer[func(named.Identity) []string]
	// rows are the named volumes, which own their objects; set once by NewNamed.
	rows atomic.Pointer[named.Provider]
	// recordsShown is set once the manager shows the records of the journal.
	recordsShown atomic.Bool
}

// NewObjects returns Objects.
func NewObjects(c ObjectsConfig) *Objects {
	o := &Objects{Bindings: c.Bindings, c: c, decoding: make(chan struct{}, 1)}
	o.Schedules = newSchedules(o, c.Journal)
	o.Ephemeral = newEphemeral(o)
	return o
}

// Apply makes every object of a manifest wanted, durably, or none (server.Objects). A check (m.Check)
// does not notice changes to fields that an earlier apply has fixed.
func (o *Objects) Apply(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	decoded, err := o.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	objects := decoded.Objects
	if err := o.checkSizes(objects); err != nil {
		return nil, err
	}
	if err := o.checkNamed(ctx, objects...); err != nil {
		return nil, err
	}
	if err := o.checkUIDs(objects); err != nil {
		return nil, err
	}
	if err := o.checkOwned(objects); err != nil {
		return nil, err
	}
	if err := o.checkNames(ctx, objects); err != nil || m.Check {
		return nil, err
	}
	results, err := o.c.API.Apply(ctx, objects)
	if errors.Is(err, api.ErrImmutable) {
		return nil, fmt.Errorf("%w: %w", server.ErrConflict, err)
	}
	if err != nil {
		return nil, err
	}
	applied := make([]server.Applied, len(results))
	for i, r := range results {
		applied[i] = server.Applied{
			Kind: r.Key.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Result: changeWord(r.Change), Warning: o.missingClass(r.Key), Note: decoded.Notes[r.Key],
		}
	}
	o.waitFollowed(ctx, objects)
	o.show(ctx)
	o.remark(applied)
	return append(applied, skipped(decoded.Others)...), nil
}

// remark adds what keeps applied pods from getting their volumes and what their author does not expect: a manifest
// that was written out of a cluster has the pod's status and its token.
func (o *Objects) remark(applied []server.Applied) {
	for i, a := range applied {
		pod, ok := o.c.Catalog.Get(source.Key{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}).(*corev1.Pod)
		if !ok {
			continue
		}
		if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			applied[i].Note = fmt.Sprintf("status.phase is %s: it has ended and gets no volume; %s", phase, server.AdviceEnded)
			continue
		}
		status, _ := o.c.Manager.Pod(state.PodUID(pod.UID))
		for _, v := range status.Volumes {
			if v.Cause.Code == state.CauseCode(state.NoIssuer) {
				applied[i].Warning = fmt.Sprintf("pod %s/%s: volume %s: no issuer of service account tokens here: %s", a.Namespace,
					a.Name, strings.Join(v.Names, ", "), server.AdviceNoIssuer)
			}
		}
	}
}

// missingClass warns that the class of an applied claim does not exist, and no volume that would do either; ""
// otherwise.
func (o *Objects) missingClass(key source.Key) string {
	claim, ok := o.c.Catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok || o.c.Catalog.VolumeOf(claim) != nil {
		return ""
	}
	text, cause := o.c.Catalog.MissingClass(claim)
	ofClass := func(pv *corev1.PersistentVolume) bool { return pv.Spec.StorageClassName == cause.Of }
	if text == "" || slices.ContainsFunc(o.c.Catalog.Volumes(), ofClass) {
		return ""
	}
	return key.String() + ": " + source.OrVolume(text, cause)
}

// Note writes a request and its result to the log of requests (server.Config). A failure to write is only
// logged: it is no reason to refuse a pod its volumes.
func (o *Objects) Note(a audit.Act, result string, err error) {
	if logErr := o.c.Audit.Note(a, result, err); logErr != nil {
		o.c.Logger.Warn("request is missing from the audit log", "verb", a.Verb, "object", a.Object, "err", logErr)
	}
}

// largeManifest is the size in bytes from which manifests are decoded one at a time: in the worst case the parser
// takes about a hundred times that memory.
const largeManifest = 256 << 10

// decode returns the objects of a manifest. It stops when ctx ends.
func (o *Objects) decode(ctx context.Context, m server.Manifest) (manifest.Decoded, error) {
	if len(m.Data) >= largeManifest {
		select {
		case o.decoding <- struct{}{}:
			defer func() { <-o.decoding }()
		case <-ctx.Done():
			return manifest.Decoded{}, fmt.Errorf("wait while another large manifest is decoded: %w", context.Cause(ctx))
		}
	}
	var decoded manifest.Decoded
	var err error
	if m.SkipUnknown {
		decoded, err = manifest.DecodeKnown(ctx, m.Name, m.Data)
	} else {
		decoded.Objects, decoded.Notes, err = manifest.DecodeContext(ctx, m.Name, m.Data)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	return decoded, err
}

// skipped is the outcome for objects of kinds that are not read.
func skipped(others []manifest.Other) (out []server.Applied) {
	for _, one := range others {
		out = append(out, server.Applied{Kind: one.Kind, Namespace: one.Namespace, Name: one.Name, Result: "skipped"})
	}
	return out
}

// show waits until the manager shows the change, so that a client that applies a change and then waits
// does not see the state before it. If ctx ends first, the change is in effect all the same.
func (o *Objects) show(ctx context.Context) { _ = o.c.Manager.Settle(ctx) }

// changeWord is kubectl's word for a change.
func changeWord(c api.Change) string {
	if c == api.Changed {
		return "configured"
	}
	return string(c)
}

// Withdraw withdraws the objects that a manifest names, except claims and snapshots (server.Objects).
func (o *Objects) Withdraw(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	decoded, err := o.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	defer o.show(ctx) // also shows what was withdrawn before an error
	out := skipped(decoded.Others)
	for _, obj := range decoded.Objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			return out, fmt.Errorf("%w: %w", server.ErrInvalid, err)
		}
		a := server.Applied{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Result: "deleted"}
		if word := deleteVerb(key.Kind); word != "" && o.isGone(key) {
			a.Result = "absent"
		} else if word != "" {
			a.Result, a.Note = "kept", "data is deleted only by: "+cmp.Or(o.Ends(key),
				"csi-volmgr delete "+word+" "+key.Name+" -n "+key.Namespace)
		} else if err := o.withdraw(ctx, key); errors.Is(err, server.ErrNotFound) {
			a.Result = "absent"
		} else if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

// withdraw withdraws one applied object.
func (o *Objects) withdraw(ctx context.Context, key source.Key) error {
	select {
	case <-o.c.Loaded: // until then, nothing seems to be applied
	case <-ctx.Done():
		return fmt.Errorf("delete %s: the applied objects are not loaded yet: %w", key, context.Cause(ctx))
	}
	err := o.c.API.Delete(ctx, key)
	if !errors.Is(err, source.ErrNotFound) {
		return err
	}
	if o.c.Catalog.Get(key) != nil {
		return o.origin(key).refused()
	}
	return o.notApplied(key)
}

// DeletePod withdraws a pod (server.Objects).
func (o *Objects) DeletePod(ctx context.Context, namespace, name string) error {
	if err := o.withdraw(ctx, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name}); err != nil {
		return err
	}
	o.show(ctx)
	return nil
}
