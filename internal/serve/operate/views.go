package operate

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Records is the part of the journal that the views show.
type Records interface {
	Recovery() state.Recovery
	// Room says why the journal takes nothing new; nil if it takes it.
	Room() error
	// SpareErr returns why the journal has no spare copy; nil if it has one.
	SpareErr() error
}

// ViewsConfig is what Views needs; every field but Manifests, Files and Runtime is required.
type ViewsConfig struct {
	Catalog    *source.Catalog
	Controller *controller.Controller
	Manager    *manager.Manager
	Journal    Records
	// JournalPath is the journal's file.
	JournalPath string
	// Manifests is the directory of manifests; "" if there is none.
	Manifests string
	// Inputs list the problems of objects, and Files those of the files of manifests; Files may be nil.
	Inputs []func() []source.Problem
	Files  func() []source.Problem
	// Cluster lists the problems with the API server. Away says that the API server is away; "" if it is
	// not.
	Cluster func() []server.Problem
	Away    func() string
	// Kept returns, by volume name, the claim that has or had the volume and whose data it holds.
	Kept func() map[string]string
	// Runtime is the container runtime; nil if there is none to ask.
	Runtime Runtime
	// Sockets list the registration sockets.
	Sockets func() []registration.SocketStatus
	Sync    *source.SyncTracker
	// Changed returns a channel that closes at the next change of claims, volumes or inputs.
	Changed func() <-chan struct{}
}

// Runtime is a container runtime that may fail to answer.
type Runtime interface {
	// Problem returns why the runtime does not answer; "" if it does.
	Problem() string
	Endpoint() string
}

// Views shows claims, volumes and inputs to the node API (server.Claims, server.Health). Any goroutine
// may call its methods.
type Views struct{ c ViewsConfig }

// NewViews returns the views.
func NewViews(c ViewsConfig) *Views { return &Views{c} }

// Changed returns a channel that closes at the next change of claims, volumes or inputs.
func (v *Views) Changed() <-chan struct{} { return v.c.Changed() }

// Claims lists the claims of the sources, and the claims whose volumes are retained, sorted.
func (v *Views) Claims() []server.ClaimStatus {
	kept := map[controller.Key]controller.ClaimStatus{}
	for _, c := range v.c.Controller.Claims() {
		kept[c.Claim] = c
	}
	var out []server.ClaimStatus
	for _, claim := range v.c.Catalog.Claims() {
		key := controller.Key{Namespace: claim.Namespace, Name: claim.Name}
		s := server.ClaimStatus{
			Namespace: claim.Namespace, Name: claim.Name, Phase: string(controller.Pending),
			RequestedBytes: claim.Spec.Resources.Requests.Storage().Value(),
			AccessModes:    made.AccessModes(claim.Spec.AccessModes), Mode: made.ModeOf(claim.Spec.VolumeMode),
			Pod: podOf(claim),
		}
		if claim.Spec.StorageClassName != nil {
			s.Class = *claim.Spec.StorageClassName
		}
		s.ReclaimPolicy = string(policyToBe(v.c.Catalog, claim))
		if c, ok := kept[key]; ok {
			v.fromController(&s, c)
			delete(kept, key)
		} else if pv, cause, err := v.c.Catalog.Bound(claim); err == nil {
			s.Phase, s.Volume, s.CapacityBytes = "Bound", pv.Name, pv.Spec.Capacity.Storage().Value()
			s.ReclaimPolicy = string(listedPolicy(v.c.Catalog, pv))
		} else {
			s.Reason, s.Cause = strings.TrimPrefix(err.Error(), made.CatalogKey(key).String()+": "), server.Cause(cause)
		}
		if b := v.c.Catalog.Binding(made.CatalogKey(key)); s.Volume == "" && b.Note != "" {
			s.Reason, s.Cause = b.Note, server.Cause(b.Cause)
		}
		out = append(out, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(kept), compareKeys) {
		s := server.ClaimStatus{Namespace: key.Namespace, Name: key.Name}
		v.fromController(&s, kept[key])
		out = append(out, s)
	}
	return out
}

func compareKeys(a, b controller.Key) int {
	return made.CatalogKey(a).Compare(made.CatalogKey(b))
}

// fromController fills in the controller's fields of a claim.
func (v *Views) fromController(s *server.ClaimStatus, c controller.ClaimStatus) {
	s.Phase, s.Reason, s.Retry = string(c.Phase), made.Note(c), server.RetryOf(c.Retry)
	s.Call, s.Refused, s.Cause = c.Call, c.Refused, server.Cause(c.Cause)
	if c.Class != "" {
		s.Class = c.Class
	}
	if vol := c.Volume; vol != nil {
		s.Volume, s.Driver, s.CapacityBytes, s.NodeBytes = vol.Name, vol.Driver, vol.CapacityBytes, vol.NodeBytes
		s.AccessModes, s.Mode, s.AttributesClass = vol.AccessModes, vol.Mode, vol.AttributesClass
		s.ReclaimPolicy = string(policyOf(v.c.Catalog, *vol))
	}
}

// PersistentVolumes lists every volume of the catalog, by name.
func (v *Views) PersistentVolumes() []server.PVStatus {
	var out []server.PVStatus
	bound, kept, policies := map[string]string{}, v.c.Kept(), map[string]controller.ReclaimPolicy{}
	for _, vol := range controller.VolumesOf(v.c.Controller.Claims()) {
		policies[vol.Name] = policyOf(v.c.Catalog, vol)
	}
	for _, c := range v.c.Catalog.Claims() {
		if pv := v.c.Catalog.VolumeOf(c); pv != nil {
			bound[pv.Name] = c.Namespace + "/" + c.Name
		}
	}
	for _, pv := range v.c.Catalog.Volumes() {
		s := server.PVStatus{
			Name: pv.Name, CapacityBytes: pv.Spec.Capacity.Storage().Value(),
			Mode: made.ModeOf(pv.Spec.VolumeMode), AccessModes: made.AccessModes(pv.Spec.AccessModes), Status: "Available",
			ReclaimPolicy: string(listedPolicy(v.c.Catalog, pv)),
		}
		if v.c.Catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == made.Name {
			s.ReclaimPolicy = cmp.Or(string(policies[pv.Name]), string(pv.Spec.PersistentVolumeReclaimPolicy))
		}
		if csi := pv.Spec.CSI; csi != nil {
			s.Driver, s.Handle = state.DriverName(csi.Driver), csi.VolumeHandle
		}
		if claim, ok := bound[pv.Name]; ok {
			s.Claim, s.Status = claim, "Bound"
		} else if r := pv.Spec.ClaimRef; r != nil {
			s.Claim, s.Status = r.Namespace+"/"+r.Name, "Released"
		} else if claim, ok := kept[pv.Name]; ok {
			s.Claim, s.Status = claim, "Released" // no source lists the claim
		}
		out = append(out, s)
	}
	return out
}

// Problems lists the problems of manifests, applied objects, the journal, the cluster and the container
// runtime.
func (v *Views) Problems() []server.Problem {
	out := v.c.Cluster()
	for _, input := range v.c.Inputs {
		for _, p := range input() {
			out = append(out, server.Problem{Source: p.Provider, Object: p.Where, Message: p.Text})
		}
	}
	if v.c.Files != nil {
		for _, p := range v.c.Files() {
			out = append(out, v.fileProblem(p))
		}
	}
	out = append(out, v.journalProblems()...)
	if v.c.Runtime != nil && v.c.Runtime.Problem() != "" {
		out = append(out, server.Problem{
			Source: "container runtime", Object: v.c.Runtime.Endpoint(), Message: v.c.Runtime.Problem(),
		})
	}
	return out
}

// Degraded lists the problems that an operator has to look at (server.Health).
func (v *Views) Degraded() (out []string) {
	if away := v.c.Away(); away != "" {
		out = append(out, away)
	}
	for _, p := range v.journalProblems() {
		out = append(out, p.String())
	}
	return out
}

// Lost says what an operator has to do after the journal may have lost records; "" if it has lost none.
func (v *Views) Lost() string {
	r := v.c.Journal.Recovery()
	if !r.Lost() {
		return ""
	}
	return "records may be lost (" + r.Why + "): what is mounted without a record counts as in use; " +
		"look with csi-volmgr get problems, then csi-volmgr journal accept"
}

// journalProblems lists the journal's problems: lost records, mounts that have none since, and a missing
// spare copy.
func (v *Views) journalProblems() (out []server.Problem) {
	path := v.c.JournalPath
	if lost := v.Lost(); lost != "" {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: lost})
	}
	for _, p := range v.c.Manager.Unrecorded().Places {
		who := "it counts as in use"
		if p.Pod != "" {
			who = "pod " + string(p.Pod) + " may use it"
		}
		out = append(out, server.Problem{Source: "journal", Object: p.Path, Message: "mounted without a record: " + who +
			"; look with: csi-volmgr who " + p.Path})
	}
	if why := v.Blocked(); why != "" {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: why})
	} else if err := v.c.Journal.SpareErr(); errors.Is(err, journal.ErrUnreadable) {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: err.Error() +
			"; what they are about is not touched; stop the daemon and take older values from the spare copy with: " +
			"csi-volmgr journal repair"})
	} else if err != nil {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: err.Error() +
			": damage of the journal could not be mended; stop the daemon and look with csi-volmgr journal check"})
	}
	return out
}

// Blocked says why the journal takes nothing new (server.Health).
func (v *Views) Blocked() string {
	if err := v.c.Journal.Room(); err != nil {
		return err.Error()
	}
	return ""
}

// fileProblem converts the problem of a manifest to the API's form. It gives the file's whole path and the line, with
// which the problem's text begins.
func (v *Views) fileProblem(p source.Problem) server.Problem {
	out := server.Problem{Source: p.Provider, Object: p.Where, Message: p.Text}
	if p.Where == v.c.Manifests || p.Object {
		return out
	}
	out.Object, out.File = "", filepath.Join(v.c.Manifests, p.Where)
	if rest, ok := strings.CutPrefix(p.Text, p.Where+":"); ok {
		line, rest, _ := strings.Cut(rest, ":")
		if number, err := strconv.Atoi(line); err == nil {
			out.Line, out.Message = number, strings.TrimSpace(rest)
		}
	}
	return out
}

// Sockets lists the registration sockets.
func (v *Views) Sockets() []server.SocketStatus {
	var out []server.SocketStatus
	for _, s := range v.c.Sockets() {
		out = append(out, server.SocketStatus{
			Path: s.Path, Driver: s.Driver, Endpoint: s.Endpoint, State: string(s.State), Problem: s.Problem,
		})
	}
	return out
}

// NotReady lists the sources that have not spoken yet.
func (v *Views) NotReady() []string {
	away := v.c.Away()
	var out []string
	for _, s := range v.c.Sync.Silent() {
		text := "source " + s + " has not spoken yet"
		if s == source.Kube && away != "" {
			text += ": " + away
		}
		out = append(out, text)
	}
	return out
}
