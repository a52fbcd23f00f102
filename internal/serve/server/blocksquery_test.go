package server

import (
	"errors"
	"net/http/httptest"
	"testing"
)

// An empty base, as from an unset shell variable, would ask for all data instead of a difference.
func TestAnEmptyBaseIsRefused(t *testing.T) {
	_, err := new(Server).blocksQuery(httptest.NewRequest("GET", "/v1/snapshots/default/tuesday/blocks?base=", nil))
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}
