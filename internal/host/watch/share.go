package watch

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// How much of the pool of helpers the calls with something in common may use (percent).
// A dead server leaves room for other servers of its namespace, a namespace for others
// of its kind, and a kind for the other kinds.
const (
	serverShare    = 20
	namespaceShare = 40
	kindShare      = 60
)

// maxShareName bounds a server's name in bytes, since it comes from a volume's
// attributes.
const maxShareName = 128

// Within returns ctx with the shares of the pool of helpers that a volume's calls count
// towards (manager.Config.Within).
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

// namespaceOf returns the namespace of a volume's claim or pods.
func namespaceOf(v state.Volume) string {
	if ns, _, ok := strings.Cut(v.Spec.Claim, "/"); ok {
		return ns
	}
	least := "" // usually all pods of a volume are of one namespace; otherwise always pick the same one
	for _, m := range v.Mounts {
		if least == "" || m.Pod.Namespace < least {
			least = m.Pod.Namespace
		}
	}
	return least
}

// serverOf returns the server of a network volume, if its source or its driver's
// attributes name one under a common name.
func serverOf(s *state.Spec) string {
	var source struct {
		Server       string   `json:"server"`
		TargetPortal string   `json:"targetPortal"`
		Endpoints    string   `json:"endpoints"`
		Monitors     []string `json:"monitors"`
	}
	// A source that is not an object, or has other types in these fields, names no
	// server.
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
