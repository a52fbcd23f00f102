package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// registeredPrefix begins the keys in operatorBucket of drivers that the daemon registers itself; the
// value is the driver's socket.
const registeredPrefix = "driver/"

// controllerPrefix begins the keys of endpoints of such drivers' controllers; the value is a controller.Endpoint. A
// version that does not know them leaves them alone. One without the driver's own key does not count.
const controllerPrefix = "controller/"

// registerDeadline bounds how long a driver may take to answer and to be registered.
const registerDeadline = 20 * time.Second

// RegistrarConfig is what a Registrar needs; every field is required.
type RegistrarConfig struct {
	// Dir holds the drivers' registration sockets.
	Dir     string
	Journal Journal
	// Controllers calls the controllers of drivers at endpoints of their own.
	Controllers Controllers
	Audit       *audit.Log
	Logger      *slog.Logger
}

// Controllers calls the Controller services of drivers at endpoints of their own.
type Controllers interface {
	// SetController has the driver's Controller service called at an endpoint. The channel gives its first answer.
	SetController(ctx context.Context, name state.DriverName, at controller.Endpoint) (<-chan error, error)
	RemoveController(name state.DriverName)
}

// Registrar registers drivers that do not register themselves, as a registrar sidecar would, while Run
// runs (server.Registrar). Any goroutine may call its methods.
type Registrar struct {
	c     RegistrarConfig
	asked chan func(ctx context.Context) // run by Run
	ended chan struct{}                  // closed when Run has ended

	// Only Run's goroutine uses the fields below.
	drivers map[state.DriverName]*announced
	calls   sync.WaitGroup
}

// announced is a driver that the Registrar registers.
type announced struct {
	endpoint string
	stop     context.CancelFunc
	result   chan error    // the first answer to the registration
	ended    chan struct{} // closed when the registration has ended
	err      error         // why it ended; valid once ended is closed
}

// hasEnded reports whether the driver is no longer registered, for example because another process
// listens at its registration socket.
func (a *announced) hasEnded() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// errEnded means that the daemon stops, and registers no driver any longer.
var errEnded = errors.New("the registration has ended: the daemon stops, or the driver was unregistered meanwhile")

// NewRegistrar returns a registrar that registers nothing before Run.
func NewRegistrar(c RegistrarConfig) *Registrar {
	return &Registrar{
		c: c, asked: make(chan func(context.Context)), ended: make(chan struct{}), drivers: map[state.DriverName]*announced{},
	}
}

// Run registers the drivers that operators handed over, until ctx ends.
func (r *Registrar) Run(ctx context.Context) error {
	defer close(r.ended)
	values, err := r.c.Journal.LoadBucket(context.WithoutCancel(ctx), operatorBucket)
	if err != nil {
		return fmt.Errorf("read which drivers were handed over: %w", err)
	}
	for key, why := range values.Unreadable {
		if name, ok := strings.CutPrefix(key, registeredPrefix); ok {
			r.c.Logger.Error("endpoint of a registered driver cannot be read; register it again with driver register",
				"driver", name, "err", why)
		}
	}
	for key, endpoint := range values.Sound {
		if name, ok := strings.CutPrefix(key, registeredPrefix); ok {
			r.setRecorded(ctx, state.DriverName(name), values)
			r.announce(ctx, state.DriverName(name), string(endpoint))
		}
	}
	defer r.calls.Wait()
	for {
		select {
		case f := <-r.asked:
			f(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// announce starts registering a driver. Only Run's goroutine calls it.
func (r *Registrar) announce(ctx context.Context, name state.DriverName, endpoint string) *announced {
	ctx, stop := context.WithCancel(ctx)
	a := &announced{endpoint: endpoint, stop: stop, result: make(chan error, 1), ended: make(chan struct{})}
	r.drivers[name] = a
	r.calls.Go(func() {
		defer close(a.ended)
		defer stop()
		a.err = localdriver.ServeRegistration(ctx, localdriver.Registration{
			RegisterConfig: localdriver.RegisterConfig{Dir: r.c.Dir, Endpoint: endpoint}, Name: string(name),
			OnResult: func(refused error) {
				select {
				case a.result <- refused:
				default:
				}
			},
		})
		if a.err != nil {
			r.c.Logger.Error("driver cannot be registered", "driver", name, "endpoint", endpoint,
				"err", a.err)
		}
	})
	return a
}

// ask runs f on Run's goroutine and waits for it.
func (r *Registrar) ask(ctx context.Context, f func(ctx context.Context)) error {
	done := make(chan struct{})
	select {
	case r.asked <- func(ctx context.Context) { f(ctx); close(done) }:
		<-done
		return nil
	case <-r.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RegisterDriver registers the driver at a socket, durably: the daemon registers it again after a restart
// (server.Registrar).
func (r *Registrar) RegisterDriver(ctx context.Context, by audit.By, of server.Registration,
) (server.Registered, error) {
	endpoint, detail := of.Endpoint, of.Endpoint
	if !filepath.IsAbs(endpoint) {
		return server.Registered{}, fmt.Errorf("%w: endpoint: found %q, want an absolute path", server.ErrInvalid, endpoint)
	}
	var at *controller.Endpoint
	if of.Controller != (controller.Endpoint{}) {
		parsed, err := of.Controller.Parsed()
		if err != nil {
			return server.Registered{}, fmt.Errorf("%w: %w", server.ErrInvalid, err)
		}
		at, detail = &parsed, detail+" controller "+parsed.Address
	}
	ctx, cancel := context.WithTimeoutCause(ctx, registerDeadline, fmt.Errorf("no answer from the driver within %v",
		registerDeadline))
	defer cancel()
	found, err := localdriver.NameOf(ctx, endpoint)
	if err == nil {
		err = localdriver.CheckNode(ctx, endpoint)
	}
	if err != nil {
		return server.Registered{}, fmt.Errorf("%w: register the driver at %s: %w", server.ErrConflict, endpoint, err)
	}
	done := server.Registered{Name: state.DriverName(found)}
	act := audit.Act{By: by, Verb: "register", Object: found, Detail: detail}
	return done, r.c.Audit.Do(act, func() (string, error) {
		undo := func() {}
		if at != nil {
			if undo, done.Note, err = r.addController(ctx, done.Name, *at); err != nil {
				return "", err
			}
		}
		if err := r.handOver(ctx, done.Name, endpoint, at); err != nil {
			undo()
			return "", err
		}
		return "", nil
	})
}

func (r *Registrar) handOver(ctx context.Context, name state.DriverName, endpoint string, at *controller.Endpoint,
) error {
	var a *announced
	var err error
	asked := r.ask(ctx, func(run context.Context) {
		before := r.drivers[name]
		if before == nil || before.hasEnded() {
			a = r.announce(run, name, endpoint)
		} else if before.endpoint != endpoint {
			err = fmt.Errorf("%w: driver %s is already registered at %s; to change that, first: csi-volmgr driver unregister %s",
				server.ErrConflict, name, before.endpoint, name)
		}
	})
	if err = errors.Join(asked, err); err != nil {
		return err
	}
	if a == nil && at == nil {
		return nil // as before
	}
	if a == nil {
		return r.record(ctx, name, endpoint, at)
	}
	select {
	case err = <-a.result:
	case <-a.ended:
		err = cmp.Or(a.err, errEnded)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.record(ctx, name, endpoint, at)
	}
	if err != nil {
		err = fmt.Errorf("%w: register driver %s: %w", server.ErrConflict, name, err)
		if e := r.withdraw(context.WithoutCancel(ctx), name); !errors.Is(e, errEnded) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// withdraw ends a registration.
func (r *Registrar) withdraw(ctx context.Context, name state.DriverName) error {
	return r.ask(ctx, func(context.Context) {
		if a := r.drivers[name]; a != nil {
			a.stop()
			<-a.ended
			delete(r.drivers, name)
		}
	})
}

// UnregisterDriver ends a registration that RegisterDriver began (server.Registrar).
func (r *Registrar) UnregisterDriver(ctx context.Context, by audit.By, name state.DriverName) error {
	known := false
	if err := r.ask(ctx, func(context.Context) { known = r.drivers[name] != nil }); err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("%w: driver %s was not handed over to this daemon", server.ErrNotFound, name)
	}
	ctx = context.WithoutCancel(ctx) // a write that is cut off may be in effect at the next start
	return r.c.Audit.Do(audit.Act{By: by, Verb: "unregister", Object: string(name)}, func() (string, error) {
		if err := r.c.Journal.CommitBucket(ctx, operatorBucket, map[string][]byte{
			registeredPrefix + string(name): nil, controllerPrefix + string(name): nil,
		}); err != nil {
			return "", fmt.Errorf("unregister driver %s: %w", name, err)
		}
		err := r.withdraw(ctx, name)
		r.c.Controllers.RemoveController(name)
		return "", err
	})
}
