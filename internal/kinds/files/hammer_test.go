package files_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var updates = flag.Int("updates", 120, "how many updates readers are hammered with")

// TestReadersOfUpdatesMissNothing: readers that open files through ..data, as programs
// that reload do, see one version in all files. Readers that open them by name always
// find every file, however fast updates come.
// Items: L04, L05, L09.
func TestReadersOfUpdatesMissNothing(t *testing.T) {
	for kind, config := range map[state.DriverName]string{
		files.ConfigMap: `{"name": "settings"}`,
		files.Secret:    `{"secretName": "settings"}`,
		files.Projected: `{"sources": [{"secret": {"name": "settings", "items": [{"key": "a", "path": "a"}]}}, {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}}]}`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, kind, config)
			n.source.put("default/settings", map[string]string{"a": "start", "b": "start"})
			if err := n.publish(); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			for _, read := range []func(string) error{readVersion, readByName} {
				wg.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						if err := read(n.target()); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for i := range *updates {
				value := fmt.Sprint("version ", i)
				n.source.put("default/settings", map[string]string{"a": value, "b": value})
				if err := n.publish(); err != nil {
					t.Error(err)
					break
				}
			}
			close(done)
			wg.Wait()
		})
	}
}

// readVersion opens one version; its files must agree.
func readVersion(target string) error {
	set, err := os.OpenRoot(filepath.Join(target, "..data"))
	if err != nil {
		return err
	}
	defer set.Close()
	a, errA := set.ReadFile("a")
	b, errB := set.ReadFile("b")
	if errA != nil || errB != nil || string(a) != string(b) {
		return fmt.Errorf("got %q, %v and %q, %v", a, errA, b, errB)
	}
	return nil
}

func readByName(target string) error {
	_, errA := os.ReadFile(filepath.Join(target, "a"))
	_, errB := os.ReadFile(filepath.Join(target, "b"))
	return errors.Join(errA, errB)
}
