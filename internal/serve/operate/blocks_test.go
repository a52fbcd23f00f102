package operate

import (
	"errors"
	"fmt"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

func TestBlocksErrorsAreOfTheAPI(t *testing.T) {
	driver := errors.New("the driver says no")
	for err, want := range map[error]error{
		fmt.Errorf("x: %w", controller.ErrNoSnapshot): server.ErrNotFound,
		fmt.Errorf("x: %w", controller.ErrNoBlocks):   server.ErrConflict,
		fmt.Errorf("x: %w", controller.ErrUnreadable): server.ErrConflict,
		driver: driver,
	} {
		if got := blocksError(err); !errors.Is(got, want) || !errors.Is(got, err) {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
	if err := blocksError(nil); err != nil {
		t.Error(err)
	}
}
