package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Forget drops a record (server.Operator). It refuses while the kernel shows mounts of the volume or
// cannot tell, unless f.Mounted is set.
func (o *Operator) Forget(ctx context.Context, by audit.By, f server.Forget) (note string, err error) {
	if f.Kind != "" {
		return o.forgetObject(ctx, by, f)
	}
	act := audit.Act{By: by, Verb: "forget", Object: string(f.Volume), Reason: f.Reason}
	if f.Mounted {
		act.Detail = "even if it is mounted"
	}
	return "", o.c.Audit.Do(act, func() (string, error) {
		v, ok := o.c.Manager.Volume(f.Volume)
		if !ok {
			return "", fmt.Errorf("%w: volume %q is not known here", server.ErrNotFound, f.Volume)
		}
		mounted, err := o.mountsOf(ctx, v)
		if err == nil && len(mounted) > 0 {
			err = fmt.Errorf("%w: volume %s is mounted at %s: unmount it first (csi-volmgr who shows who uses it), or forget "+
				"it anyway with --even-mounted",
				server.ErrConflict, f.Volume, strings.Join(mounted, ", "))
		}
		if err != nil && !f.Mounted {
			return "", err
		}
		if err := o.c.Manager.Forget(ctx, f.Volume, mounted...); errors.Is(err, manager.ErrInUse) {
			return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		if v.Volume.Spec != nil && v.Volume.Needs.Attach {
			if err := o.c.ForgetAttachment(ctx, v.Volume); err != nil {
				return "", err
			}
		}
		return "left mounted at: " + strings.Join(mounted, ", "), nil
	})
}

// forgetObject drops the record of a claim's volume or of a snapshot. What may be left at the storage is in the audit
// log, and in the note.
func (o *Operator) forgetObject(ctx context.Context, by audit.By, f server.Forget) (note string, err error) {
	verb, forget := "pvc", o.c.ForgetClaim
	if f.Kind == "snapshot" {
		verb, forget = "snapshot", o.c.ForgetSnapshot
	}
	key := controller.Key{Namespace: f.Namespace, Name: f.Name}
	if silent := o.c.Silent(); len(silent) > 0 {
		return "", fmt.Errorf("%w: cannot tell yet who uses %s %s: %s", server.ErrConflict, f.Kind, key,
			strings.Join(silent, ", "))
	}
	act := audit.Act{By: by, Verb: "forget " + verb, Object: key.String(), Reason: f.Reason}
	if f.Gone {
		act.Detail = "its driver is gone for good"
	}
	err = o.c.Audit.Do(act, func() (string, error) {
		left, err := forget(ctx, key, f.Gone)
		if err == nil {
			note = "may be left at the storage: " + left
		}
		return note, err
	})
	switch {
	case errors.Is(err, controller.ErrNotFound):
		return "", fmt.Errorf("%w: %w", server.ErrNotFound, err)
	case errors.Is(err, controller.ErrListed):
		return "", fmt.Errorf("%w: %w: first: csi-volmgr delete %s %s -n %s", server.ErrConflict, err, verb, f.Name,
			f.Namespace)
	case errors.Is(err, controller.ErrNotForgotten), errors.Is(err, controller.ErrInUse),
		errors.Is(err, controller.ErrGrouped):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	}
	return note, err
}
