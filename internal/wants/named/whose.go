package named

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Asker is who asks for volumes: a front end or, if FrontEnd is "", the operator.
type Asker struct {
	FrontEnd string
	// Tenant is the namespace of Nomad that asks; "" if that is unknown.
	Tenant string
	// UID and PID are those of the asking process; 0 is the daemon itself, which goes on with what it began.
	UID uint32
	PID int32
}

// String names the asker in the audit log.
func (a Asker) String() string {
	if a.FrontEnd == "" {
		return "the operator"
	}
	return "front end " + a.FrontEnd
}

// removal says, for the audit log, whose volume is removed and who asked for that. by is the daemon itself after a
// restart; the row says who asked before it.
func (v Volume) removal(by Asker) string {
	asked := by.String()
	if by.PID == 0 {
		asked = v.RemovedBy
	}
	if asked == "" { // of an earlier version
		return fmt.Sprintf("%s volume %s was removed", v.FrontEnd, v.Name)
	}
	return fmt.Sprintf("%s volume %s was removed: %s asked", v.FrontEnd, v.Name, asked)
}

// reaches reports whether the asker may list, get, mount and remove a volume: the operator each one, a front end those
// that it created, for a namespace of Nomad those of that namespace. An unreadable row may not say which front end that
// was; then each one whose names have this form is answered, because Docker forgets a volume that is said not to exist.
func (a Asker) reaches(v Volume) bool {
	switch {
	case a.FrontEnd == "":
		return true
	case a.FrontEnd == v.FrontEnd:
		return a.Tenant == "" || v.Tenant == "" || a.Tenant == v.Tenant
	case v.FrontEnd != "":
		return false
	case strings.Contains(v.Name, "/"):
		return a.FrontEnd == Mount
	case a.FrontEnd == Nomad:
		return strings.HasPrefix(v.Name, NomadPrefix)
	}
	return a.FrontEnd == Docker
}

// foreign returns an error that wraps is, names a volume's front end, and says what an asker can do who may not use the
// volume or, with ends, not remove it.
func foreign(v Volume, is error, ends bool) error {
	n := v.full()
	switch {
	case n.FrontEnd == "":
		return fmt.Errorf("volume %s: %w: its row in the journal is not readable", v.Name, is)
	case ends:
		return fmt.Errorf("volume %s: %w: it is %s, which ends by: %s", v.Name, is, n.Whose(), n.Ends(nil))
	}
	return fmt.Errorf("volume %s: %w: it is %s; to use its data too, create a volume of another name with %s", v.Name, is,
		n.Whose(), v.Options.sharing())
}

// sharing returns the options of a volume that uses the same directory of the same claim.
func (o Options) sharing() string {
	words := "option claim=" + o.Claim
	if o.Namespace != corev1.NamespaceDefault {
		words += ", namespace=" + o.Namespace
	}
	if o.Subdir != "" {
		words += ", subdir=" + o.Subdir
	}
	return words
}

// Front is the named volumes that one asker reaches. For the others it behaves as if they did not exist, except that
// it refuses to create, mount and remove them by the name of their front end.
type Front struct {
	p  *Provider
	by Asker
}

// For returns the volumes that the asker reaches.
func (p *Provider) For(by Asker) Front { return Front{p, by} }

// Create is [Provider.Create].
func (f Front) Create(ctx context.Context, r Request) error { return f.p.Create(ctx, r) }

// Get is [Provider.Get].
func (f Front) Get(ctx context.Context, name string) (View, error) {
	if err := f.check(ctx, name, ErrNotFound, true); err != nil {
		return View{}, err
	}
	return f.p.Get(ctx, name)
}

// List is [Provider.List].
func (f Front) List(ctx context.Context) ([]View, error) {
	return f.p.list(ctx, f.by.reaches)
}

// Mount is [Provider.Mount] for the process pid, 0 if that is unknown.
func (f Front) Mount(ctx context.Context, name, id string, pid int32) (string, error) {
	if err := f.check(ctx, name, ErrConflict, false); err != nil {
		return "", fmt.Errorf("mount %w", err)
	}
	return f.p.mountFor(ctx, name, id, pid)
}

// Unmount is [Provider.Unmount]. It ends a use of every volume, since an earlier version counted uses of other front
// ends' volumes.
func (f Front) Unmount(ctx context.Context, name, id string) error { return f.p.Unmount(ctx, name, id) }

// Remove removes a volume, and also its storage if its reclaim policy is Delete; otherwise note
// says where the storage is. Remove fails with an error that wraps ErrConflict while the kernel
// shows a holder, a container may be about to start, or another pod uses the claim. If ctx ends,
// the removal continues with the next Remove or the next start. The process with uid and pid asks,
// 0 if that is unknown.
func (f Front) Remove(ctx context.Context, uid uint32, pid int32, name string) (note string, err error) {
	if err := f.check(ctx, name, ErrConflict, true); err != nil {
		return "", fmt.Errorf("remove %w", err)
	}
	r, err := f.p.find(ctx, name)
	if err != nil {
		return "", err
	}
	return f.p.remove(ctx, r, Asker{FrontEnd: f.by.FrontEnd, Tenant: f.by.Tenant, UID: uid, PID: pid})
}

// check returns an error that wraps is if there is a volume of that name that the asker does not reach.
func (f Front) check(ctx context.Context, name string, is error, ends bool) error {
	if err := f.p.waitLoaded(ctx); err != nil {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if r := f.p.rows[name]; r != nil && !f.by.reaches(r.v) {
		if f.by.FrontEnd == r.v.FrontEnd {
			return fmt.Errorf("volume %s: %w: it is of another namespace of Nomad", name, is)
		}
		return foreign(r.v, is, ends)
	}
	return nil
}

// checkOwn returns an error if a volume of the request's name belongs to another front end.
func (p *Provider) checkOwn(ctx context.Context, req Request) error {
	err := p.For(Asker{FrontEnd: req.FrontEnd, Tenant: req.Tenant}).check(ctx, req.Name, ErrConflict, false)
	if err != nil {
		return fmt.Errorf("create %w", err)
	}
	return nil
}
