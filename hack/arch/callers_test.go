package arch

import (
	"go/types"
	"slices"
	"strings"
	"testing"
)

// embedders are the kubelet's methods that the program itself does not call: an agent
// that embeds the manager in the kubelet's place calls them by these names.
var embedders = []string{
	"GetExtraSupplementalGroupsForPod", "GetPossiblyMountedVolumesForPod", "GetVolumesInUse",
	"HasPossiblyMountedVolumesForPod", "VolumeIsAttached", "WaitForAllPodsUnmount",
}

// No exported function or method of pkg/manager exists only for tests, so the simulation
// drives the same code as the product.
func TestTheProductCallsWhatTheManagerExports(t *testing.T) {
	all := newTyped(t)
	manager, err := all.From.Import(Module + "/pkg/manager")
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, p := range all.Packages {
		dir := strings.TrimPrefix(p.ImportPath, Module+"/")
		if dir == "pkg/manager" || !product(dir) {
			continue
		}
		all.calls(p, manager, called)
	}
	var idle []string
	for name, f := range exported(manager) {
		if !called[name] && !slices.Contains(embedders, f.Name()) && f.Name() != "Error" {
			idle = append(idle, name)
		}
	}
	slices.Sort(idle)
	if len(idle) > 0 {
		t.Errorf("no room of the product calls %s of pkg/manager: take them out, or call them", strings.Join(idle, ", "))
	}
}

// exported returns the functions of a package, and the methods of its concrete types.
func exported(p *types.Package) map[string]*types.Func {
	all := map[string]*types.Func{}
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Func:
			if o.Exported() {
				all[o.FullName()] = o
			}
		case *types.TypeName:
			n, ok := o.Type().(*types.Named)
			if !ok || !o.Exported() || types.IsInterface(n) {
				continue
			}
			for m := range n.Methods() {
				if m.Exported() {
					all[m.FullName()] = m
				}
			}
		}
	}
	return all
}

// calls adds to called the functions and methods that a package uses from another, also
// through an interface of its own.
func (t *typed) calls(p Package, of *types.Package, called map[string]bool) {
	t.Helper()
	info := t.check(p.ImportPath, t.parse(p))
	for _, o := range info.Uses {
		f, ok := o.(*types.Func)
		if !ok || f.Pkg() == nil {
			continue
		}
		called[f.FullName()] = true
		recv := f.Signature().Recv()
		if recv == nil || !types.IsInterface(recv.Type()) {
			continue
		}
		iface := recv.Type().Underlying().(*types.Interface)
		for name, m := range exported(of) {
			if r := m.Signature().Recv(); r != nil && m.Name() == f.Name() && types.Implements(r.Type(), iface) {
				called[name] = true
			}
		}
	}
}
