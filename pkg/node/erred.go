package node

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// erredEvery is how often it is looked for file systems that the kernel has made
// read-only, of which it tells nobody: reading 1,000 mounts takes 10 ms. Half as
// much again at most is added by chance, so that nodes do not do it in step.
const erredEvery = 40 * time.Second

// runErred tells the manager of file systems that take no writes any more.
func (n *Node) runErred(ctx context.Context) error {
	real, err := filepath.EvalSymlinks(n.cfg.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	every := cmp.Or(n.cfg.erredEvery, erredEvery)
	for told, ill := false, false; ; {
		pause := time.NewTimer(every + rand.N(every/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
		var err error
		if ill, err = n.tellErred(ctx, real, ill); err != nil && !told && ctx.Err() == nil {
			told = true
			n.log.Warn("file systems that turn read-only are not noticed", "err", err)
		}
	}
}

// tellErred looks once, and reports whether any was found. real is the root as the
// mount table has it. That there are none is told once, for whatever is told is a
// change to all who follow the manager, and with 1,000 volumes those have work.
func (n *Node) tellErred(ctx context.Context, real string, before bool) (ill bool, err error) {
	found, err := n.kernel.Erred(ctx, real)
	if err != nil {
		return before, err
	}
	if len(found) == 0 && !before {
		return false, nil
	}
	erred := make(map[string]plan.Fault, len(found))
	for path, fault := range found {
		erred[n.cfg.Root+strings.TrimPrefix(path, real)] = plan.Fault(fault)
	}
	n.manager.MountsErred(erred)
	return len(found) > 0, nil
}
