package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

const parted = "parted.example.com"

// twoParts is a node with a strict driver whose node part and controller have an endpoint each.
type twoParts struct {
	*Node
	t      *testing.T
	driver *csistrict.Driver
	state  string
	at     Config
	stop   func() // ends the node
}

func newTwoParts(t *testing.T, c Config, without ...string) *twoParts {
	t.Helper()
	p := &twoParts{t: t, at: c, state: filepath.Join(filepath.Dir(c.Root), "driver")}
	var err error
	p.driver, err = csistrict.New(csistrict.Config{Name: parted, NodeID: "n1", StateDir: p.state, Without: without})
	if err != nil {
		t.Fatal(err)
	}
	p.Node, p.stop = start(t, c)
	return p
}

func (p *twoParts) path(name string) string { return filepath.Join(filepath.Dir(p.at.Root), name) }

// serve serves a part of the driver at a socket until the test or stop ends it.
func (p *twoParts) serve(name string, part csistrict.Part) (stop func()) {
	p.t.Helper()
	l, err := net.Listen("unix", p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.serveAt(l, part)
}

func (p *twoParts) serveAt(l net.Listener, part csistrict.Part) (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.driver.ServePart(ctx, l, part) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				p.t.Error(err)
			}
		}
	}
	p.t.Cleanup(stop)
	return stop
}

// register does what csi-volmgr driver register asks of the daemon. csi-volmgr describe driver shows what Controller returns.
func (p *twoParts) register(at controller.Endpoint) (server.Registered, error) {
	p.t.Helper()
	return p.RegisterDriver(within(p.t), audit.By{}, server.Registration{Endpoint: p.path("node.sock"), Controller: at})
}

// until waits until ok returns "", and fails with what it returned last.
func (p *twoParts) until(ok func() string) {
	p.t.Helper()
	patience := within(p.t)
	for {
		ofController, ofManager, others := p.controller.Changed(), p.manager.Changed(), p.changed.next()
		why := ok()
		if why == "" {
			return
		}
		select {
		case <-ofController:
		case <-ofManager:
		case <-others:
		case <-patience.Done():
			p.t.Fatal(why)
		}
	}
}

// untilController waits until ok accepts the state of the driver's controller.
func (p *twoParts) untilController(ok func(drivers.Controller) bool) (now drivers.Controller) {
	p.t.Helper()
	p.until(func() string {
		if now, _ = p.Controller(parted); !ok(now) {
			return "the controller stays " + now.Endpoint + " " + now.Problem
		}
		return ""
	})
	return now
}

// untilMounted waits until the pod has all its volumes, or none.
func (p *twoParts) untilMounted(pod string, want bool) {
	p.t.Helper()
	p.until(func() string {
		for _, s := range p.manager.Pods() {
			if s.Pod.Name == pod && s.Ready == want {
				return ""
			} else if s.Pod.Name == pod {
				return pod + " stays: " + s.Volumes[0].BlockedBy + s.Volumes[0].Retry.Error
			}
		}
		if want {
			return "pod " + pod + " is not known"
		}
		return ""
	})
}

// judged fails the test for each rule that was broken.
func (p *twoParts) judged() {
	p.t.Helper()
	events, err := csistrict.ReadTranscript(p.state)
	if err != nil || len(events) == 0 {
		p.t.Errorf("transcript: %d events, %v", len(events), err)
	}
	for _, b := range csistrict.Breaches(events) {
		p.t.Errorf("breach of %s by %s of %s: %s", b.Rule, b.Call, b.Volume, b.Text)
	}
}

const partedClaim = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: parted}
provisioner: parted.example.com
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: parted, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

const partedPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: web, image: web, volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
`

func (p *twoParts) waitsFor(cause state.CauseCode, texts ...string) {
	p.t.Helper()
	p.until(func() string {
		c, known := p.controller.Claim(controller.Key{Namespace: "default", Name: "data"})
		has := func(text string) bool { return !strings.Contains(c.Reason, text) }
		if !known || c.Cause.Code != cause || slices.ContainsFunc(texts, has) {
			return "the claim stays: " + string(c.Cause.Code) + ": " + c.Reason
		}
		return ""
	})
}

// TestADriverInTwoParts: the node part works while the controller is late, a claim and an attachment wait for the
// controller alone and say so, and what is mounted stays and is unmounted while the controller is away.
func TestADriverInTwoParts(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	done, err := p.register(controller.Endpoint{Address: p.path("controller.sock")})
	if err != nil || done.Name != parted || !strings.Contains(done.Note, "controller.sock is away") {
		t.Fatalf("registered while the controller is late: %+v, %v", done, err)
	}
	apply(t, p.Node, partedClaim+"---"+partedPod)
	p.waitsFor(state.ControllerAway, "the controller of driver parted.example.com at", "no such file")
	end := p.serve("controller.sock", csistrict.Part{Controller: true})
	p.untilMounted("web", true)
	up := p.untilController(func(c drivers.Controller) bool { return c.Up })
	if up.Generation != 1 || !slices.Contains(up.Capabilities, "PUBLISH_UNPUBLISH_VOLUME") {
		t.Errorf("the controller that is up: %+v", up)
	}
	end()
	p.untilController(func(c drivers.Controller) bool { return !c.Up && c.Problem != "" })
	if d, ok := p.driverUp(); !ok {
		t.Errorf("the node part while its controller is away: %+v", d)
	}
	if _, err := p.Withdraw(t.Context(), manifestOf(partedPod)); err != nil {
		t.Fatal(err)
	}
	p.until(func() string { // the node part unmounts; the detachment waits
		for _, v := range p.manager.Volumes() {
			if v.Held.Code == "AttacherDown" && v.Volume.Stage.Phase == state.Absent && strings.Contains(v.Held.Reason, "away") {
				return ""
			}
		}
		return "no detachment waits for the controller"
	})
	defer p.serve("controller.sock", csistrict.Part{Controller: true})()
	p.until(func() string {
		if len(p.manager.Volumes()) > 0 {
			return "the volume is not detached"
		}
		return ""
	})
	if again, _ := p.Controller(parted); again.Generation != 2 {
		t.Errorf("generation %d of a controller that came back, want 2", again.Generation)
	}
	p.judged()
}

func (p *twoParts) driverUp() (manager.DriverStatus, bool) {
	for _, d := range p.manager.Drivers() {
		if d.Name == parted {
			return d, d.Up
		}
	}
	return manager.DriverStatus{}, false
}

// TestAVolumeWithoutAttachmentDoesNotWaitForTheController: neither the claim, which exists, nor the mount needs it.
func TestAVolumeWithoutAttachmentDoesNotWaitForTheController(t *testing.T) {
	const static = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: parted.example.com}
spec: {attachRequired: false}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: old}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Mi}, csi: {driver: parted.example.com, volumeHandle: HANDLE, volumeAttributes: {name: NAME, tag: ""}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: "", volumeName: old, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---`
	p := newTwoParts(t, dirs(t), "PUBLISH_UNPUBLISH_VOLUME")
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	end := p.serve("controller.sock", csistrict.Part{Controller: true})
	at := controller.Endpoint{Address: p.path("controller.sock")}
	if _, err := p.register(at); err != nil {
		t.Fatal(err)
	}
	apply(t, p.Node, partedClaim)
	var made *controller.Volume
	p.until(func() string {
		c, _ := p.controller.Claim(controller.Key{Namespace: "default", Name: "data"})
		if c.Volume == nil {
			return "no volume: " + c.Reason
		}
		made = c.Volume
		return ""
	})
	end()
	p.untilController(func(c drivers.Controller) bool { return !c.Up })
	p.stop()
	other := p.at
	other.StateDir += "2" // a journal that does not know the volume
	p.Node, p.stop = start(t, other)
	if _, err := p.register(at); err != nil {
		t.Fatal(err)
	}
	apply(t, p.Node, strings.NewReplacer("HANDLE", made.Handle, "NAME", made.Name).Replace(static)+partedPod)
	p.untilMounted("web", true)
	if now, _ := p.Controller(parted); now.Up || now.Generation != 0 {
		t.Errorf("the controller: %+v", now)
	}
	p.judged()
}

// TestADriverInTwoPartsAfterARestart: the daemon calls both parts again, and unregistering forgets both.
func TestADriverInTwoPartsAfterARestart(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	defer p.serve("controller.sock", csistrict.Part{Controller: true})()
	if done, err := p.register(controller.Endpoint{Address: p.path("controller.sock")}); err != nil || done.Note != "" {
		t.Fatal(done, err)
	}
	p.stop()
	p.Node, p.stop = start(t, p.at)
	apply(t, p.Node, partedClaim+"---"+partedPod)
	p.untilMounted("web", true)
	done, err := p.register(controller.Endpoint{})
	if now, _ := p.Controller(parted); err != nil || now.Endpoint == "" {
		t.Errorf("registered again without its controller: %+v, %v, %+v", done, err, now)
	}
	if err := p.UnregisterDriver(within(t), audit.By{}, parted); err != nil {
		t.Fatal(err)
	}
	p.until(func() string {
		if now, known := p.Controller(parted); known {
			return "unregistered, its controller is known: " + now.Endpoint
		}
		return ""
	})
	p.stop()
	p.Node, p.stop = start(t, p.at)
	if done, err := p.register(controller.Endpoint{}); err != nil {
		t.Fatal(done, err)
	}
	p.waitsForNoController()
	p.judged()
}

// waitsForNoController waits until the driver is up and its controller is not known.
func (p *twoParts) waitsForNoController() {
	p.t.Helper()
	p.until(func() string {
		_, up := p.driverUp()
		if now, known := p.Controller(parted); !up || !known || now.Endpoint != "" || now.Up {
			return "the driver is not up without a controller"
		}
		return ""
	})
}

// A driver whose socket serves no Controller service is up, and a claim says what it waits for.
func TestAClaimSaysThatNoControllerIsServed(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	if _, err := p.register(controller.Endpoint{}); err != nil {
		t.Fatal(err)
	}
	apply(t, p.Node, partedClaim)
	p.waitsFor(state.NoController, "driver parted.example.com is up at", "serves no Controller service there")
}

// The controller that an operator names is called, and not the node part's own, which lacks what it needs.
func TestANamedControllerWinsOverTheNodePartsOwn(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true, Denied: true})()
	defer p.serve("controller.sock", csistrict.Part{Controller: true})()
	if done, err := p.register(controller.Endpoint{Address: p.path("controller.sock")}); err != nil || done.Note != "" {
		t.Fatal(done, err)
	}
	apply(t, p.Node, partedClaim+"---"+partedPod)
	p.untilMounted("web", true)
	p.judged()
}

// A controller that calls itself by another name is refused, with both names, and nothing is registered.
func TestAControllerOfAnotherNameIsRefused(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	defer p.serve("controller.sock", csistrict.Part{Controller: true, Name: "other.example.com"})()
	_, err := p.register(controller.Endpoint{Address: p.path("controller.sock")})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), `"other.example.com"`) || !strings.Contains(err.Error(), `"parted.example.com"`) {
		t.Errorf("another name: %v", err)
	}
	if now, known := p.Controller(parted); known {
		t.Errorf("the refused controller is called: %+v", now)
	}
	if _, up := p.driverUp(); up {
		t.Error("the driver is registered")
	}
}

// A controller's socket without the node part's is refused at once, with what to register.
func TestAControllersSocketAloneIsRefused(t *testing.T) {
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Controller: true})()
	_, err := p.register(controller.Endpoint{})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "register SOCKET --controller="+p.path("node.sock")) {
		t.Errorf("a controller's socket: %v", err)
	}
}

// What the configuration says of a controller holds against operators.
func TestTheConfigurationsControllerStays(t *testing.T) {
	c := dirs(t)
	at := controller.Endpoint{Address: filepath.Join(filepath.Dir(c.Root), "controller.sock")}
	c.Controllers = map[state.DriverName]controller.Endpoint{parted: at}
	p := newTwoParts(t, c)
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	defer p.serve("controller.sock", csistrict.Part{Controller: true})()
	_, err := p.register(controller.Endpoint{Address: p.path("other.sock")})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "driver-controller") {
		t.Errorf("another endpoint than the configuration's: %v", err)
	}
	if _, err := p.register(controller.Endpoint{}); err != nil {
		t.Fatal(err)
	}
	apply(t, p.Node, partedClaim+"---"+partedPod)
	p.untilMounted("web", true)
	if err := p.UnregisterDriver(within(t), audit.By{}, parted); err != nil {
		t.Fatal(err)
	}
	if now, _ := p.Controller(parted); now.Endpoint != at.Address {
		t.Errorf("after unregister: %+v", now)
	}
	if _, err := os.Stat(p.path("controller.sock")); err != nil {
		t.Error(err)
	}
}
