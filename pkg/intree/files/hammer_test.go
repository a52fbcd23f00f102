package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// L04, L05: a reader that goes by ..data, as programs that reload do, sees one
// version in all its files. It may see nothing where it falls behind by two
// versions within one look-up, which it does here now and then: updates come
// every two milliseconds, and the version before the current one is kept.
func TestReadersOfAThousandUpdatesSeeNoMixture(t *testing.T) {
	for kind, config := range map[state.DriverName]string{
		files.Secret:    `{"secretName": "settings"}`,
		files.Projected: `{"sources": [{"secret": {"name": "settings", "items": [{"key": "a", "path": "a"}]}}, {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}}]}`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			n := newNode(t, kind, config)
			n.source.put("default/settings", map[string]string{"a": "start", "b": "start"})
			if err := n.publish(); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						if err := readOnce(n.target()); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for i := range 1000 {
				value := fmt.Sprint("version ", i)
				n.source.put("default/settings", map[string]string{"a": value, "b": value})
				if err := n.publish(); err != nil {
					t.Fatal(err)
				}
			}
			close(done)
			wg.Wait()
		})
	}
}

func readOnce(target string) error {
	set, err := os.OpenRoot(filepath.Join(target, "..data"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer set.Close()
	a, errA := set.ReadFile("a")
	b, errB := set.ReadFile("b")
	if errors.Is(errA, os.ErrNotExist) || errors.Is(errB, os.ErrNotExist) {
		return nil // the writer is two versions ahead, and the set is going
	}
	if errA != nil || errB != nil || string(a) != string(b) {
		return fmt.Errorf("got %q, %v and %q, %v", a, errA, b, errB)
	}
	return nil
}
