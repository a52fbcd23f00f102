package fsgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := isolate.Serve(context.Background(), Helper()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	drivertest.Enter()
	goleak.VerifyTestMain(m)
}

// newHelpers returns helper processes that run this test's own program.
func newHelpers(t *testing.T) *isolate.Pool {
	t.Helper()
	p := isolate.New(isolate.Config{Command: func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "helper")
		cmd.Stderr = os.Stderr
		return cmd
	}, Service: Helper()})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
