package health

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// desk returns what Controller services say of the volumes of claims.
type desk struct {
	claims map[state.VolumeID]controller.Monitored
	found  []csiclient.Condition
	err    error
}

func (d desk) Monitored() map[state.VolumeID]controller.Monitored { return maps.Clone(d.claims) }

func (d desk) Health(claim string, id state.VolumeID) (func(context.Context) ([]csiclient.Condition, error), bool) {
	return func(context.Context) ([]csiclient.Condition, error) { return d.found, d.err }, d.claims[id].Claim == claim && claim != ""
}

// The status of a claim's volume has the answer of the Controller service, and that of the driver on this node if
// the volume is here. If one of them fails, the other does not make the volume healthy.
func TestTheControllerServiceIsAskedBesides(t *testing.T) {
	const here, away = state.VolumeID("judge.example.com^vol"), state.VolumeID("judge.example.com^away")
	loss, broken := []csiclient.Condition{{Status: "DATA_LOSS", Reason: "TwoDisks"}}, errors.New("no array")
	node, all := stats.Condition{Status: "INACCESSIBLE", Reason: "NoPath"}, stats.Condition{Status: "DATA_LOSS", Reason: "TwoDisks", Controller: true}
	for what, c := range map[string]struct {
		judge  *judge
		found  []csiclient.Condition
		err    error
		id     state.VolumeID
		want   []stats.Condition
		judged bool
		fails  bool
	}{
		"both say that something is wrong":      {judge: &judge{}, found: loss, id: here, want: []stats.Condition{node, all}, judged: true},
		"the node says so":                      {judge: &judge{}, id: here, want: []stats.Condition{node}, judged: true},
		"the node says so, and the other fails": {judge: &judge{}, err: broken, id: here, want: []stats.Condition{node}, judged: true, fails: true},
		"the node fails": {
			judge: &judge{stats: status.Error(codes.Internal, "no path"), health: status.Error(codes.Internal, "no path")}, id: here, fails: true,
		},
		"nothing is here, and all is well":   {judge: &judge{}, id: away, judged: true},
		"nothing is here, and data are lost": {judge: &judge{}, id: away, found: loss, want: []stats.Condition{all}, judged: true},
		"nothing is here, and it fails":      {judge: &judge{}, id: away, err: broken, fails: true},
	} {
		v := state.Volume{
			ID: here, Stage: state.Fact{Phase: state.Present},
			Spec: &state.Spec{Driver: "judge.example.com", Handle: "vol", Claim: "default/a", Mode: state.Filesystem, StagePath: "/stage"},
			Mounts: map[state.PodUID]state.Mount{
				"pod": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Target: "/target"}},
			},
		}
		d := c.judge.serve(t)
		a := &Asker{
			Volumes: volumes{{Volume: v}}, Mounts: watch.NewMounts(watch.MountsConfig{}),
			Controller: desk{map[state.VolumeID]controller.Monitored{
				here: {Driver: "judge.example.com", Claim: "default/a"}, away: {Driver: "judge.example.com", Claim: "default/b"},
			}, c.found, c.err},
			Drivers: func() map[state.DriverName]*csiclient.Driver {
				return map[state.DriverName]*csiclient.Driver{"judge.example.com": d}
			},
		}
		subjects := map[string]stats.Subject{}
		for s := range a.Subjects {
			if _, twice := subjects[s.Key]; twice || !s.Watched {
				t.Errorf("%s: %+v, twice %v", what, s, twice)
			}
			subjects[s.Key] = s
		}
		q, ok := a.Question(subjects[string(c.id)])
		if !ok || q.Source != "judge.example.com" {
			t.Errorf("%s: %+v, %v", what, q, ok)
			continue
		}
		r, err := q.Ask(t.Context())
		if (err != nil) != c.fails || r.Diagnosed != c.judged || len(r.Conditions) != len(c.want) {
			t.Errorf("%s: %+v, %v", what, r, err)
			continue
		}
		for i, want := range c.want {
			if r.Conditions[i] != want {
				t.Errorf("%s: %+v, want %+v", what, r.Conditions[i], want)
			}
		}
		if c.id == here && c.err == nil && c.fails && !strings.Contains(err.Error(), "no path") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A call in flight on this node postpones the question to the Controller service; a driver that is away from this
// node does not.
func TestTheControllerServiceIsAskedAlone(t *testing.T) {
	const id = state.VolumeID("d^vol")
	claims := map[state.VolumeID]controller.Monitored{id: {Driver: "d", Claim: "default/a"}}
	v := manager.VolumeStatus{Volume: state.Volume{ID: id, Spec: &state.Spec{Driver: "d", Handle: "vol", Claim: "default/a"}}}
	for _, busy := range []bool{false, true} {
		if v.Call.Kind = plan.None; busy {
			v.Call.Kind = plan.Stage
		}
		a := &Asker{
			Volumes: volumes{v}, Mounts: watch.NewMounts(watch.MountsConfig{}), Controller: desk{claims: claims},
			Drivers: func() map[state.DriverName]*csiclient.Driver { return nil },
		}
		q, ok := a.Question(stats.Subject{Key: string(id), Driver: "d", Claim: "default/a"})
		if ok == busy {
			t.Errorf("in flight %v: asked %v", busy, ok)
		}
		if !ok {
			continue
		}
		if r, err := q.Ask(t.Context()); err != nil || !r.Diagnosed {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
