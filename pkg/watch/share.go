package watch

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// How much of the pool of helpers the calls may take that have something in common
// (percent): a dead server leaves room for others of its namespace, a namespace for
// others of its kind, and a kind for the other kinds.
const (
	serverShare    = 20
	namespaceShare = 40
	kindShare      = 60
)

// maxShareName bounds what of a volume's attributes is kept as a name (bytes).
const maxShareName = 128

// Within returns ctx with the shares of the pool of helpers that calls for a volume
// count for (manager.Config.Within).
func Within(ctx context.Context, v state.Volume) context.Context {
	shares := []isolate.Share{{Name: "kind " + string(v.Spec.Driver), Percent: kindShare}}
	if ns := namespaceOf(v); ns != "" {
		shares = append(shares, isolate.Share{Name: "namespace " + ns, Percent: namespaceShare})
	}
	if server := serverOf(v.Spec); server != "" {
		shares = append(shares, isolate.Share{
			Name:    "server " + server[:min(len(server), maxShareName)],
			Percent: serverShare,
		})
	}
	return isolate.WithShares(ctx, shares...)
}

// namespaceOf returns the namespace of the claim or of the pods of a volume.
func namespaceOf(v state.Volume) string {
	if ns, _, ok := strings.Cut(v.Spec.Claim, "/"); ok {
		return ns
	}
	least := "" // the pods of one volume are of one namespace, else any does that is the same each time
	for _, m := range v.Mounts {
		if least == "" || m.Pod.Namespace < least {
			least = m.Pod.Namespace
		}
	}
	return least
}

// serverOf returns what serves a volume over the network, as far as its source or
// its driver's attributes say so by the names that are usual.
func serverOf(s *state.Spec) string {
	var source struct {
		Server       string   `json:"server"`
		TargetPortal string   `json:"targetPortal"`
		Endpoints    string   `json:"endpoints"`
		Monitors     []string `json:"monitors"`
	}
	// A source that is no object, or has them otherwise, has no server.
	if len(s.Config) > 0 && json.Unmarshal(s.Config, &source) == nil {
		for _, name := range []string{
			source.Server, source.TargetPortal, source.Endpoints,
			strings.Join(source.Monitors, ","),
		} {
			if name != "" {
				return name
			}
		}
	}
	for _, name := range []string{"server", "source", "targetPortal", "monitors", "clusterID"} {
		if server := s.Context[name]; server != "" {
			return server
		}
	}
	return ""
}
