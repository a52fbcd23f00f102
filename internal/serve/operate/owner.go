package operate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// SourceSpoke notes that a source has delivered all its objects, for which bindings and named volumes may wait.
func (o *Objects) SourceSpoke() {
	o.Bindings.Wake()
	o.Ephemeral.Wake()
	if p := o.rows.Load(); p != nil {
		p.Wake()
	}
}

// checkNamed refuses an object that would take the place of one that stands for a named volume: its users would get
// the data of another.
func (o *Objects) checkNamed(ctx context.Context, objects ...runtime.Object) error {
	p := o.rows.Load()
	if p == nil {
		return nil
	}
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			continue // api.Provider reports it
		}
		n, owned, err := p.Owner(ctx, api.Name, key)
		if err != nil {
			return err
		}
		if owned {
			return fmt.Errorf("%w: %s belongs to %s: give the object another name, or remove the volume with: %s",
				server.ErrConflict, key, n.Whose(), n.Ends(nil))
		}
	}
	return nil
}
