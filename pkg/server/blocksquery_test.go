package server

import (
	"errors"
	"net/http/httptest"
	"testing"
)

// A base that is empty, as of a variable that is not set, would ask for all data in place of a difference.
func TestAnEmptyBaseIsRefused(t *testing.T) {
	_, err := new(Server).blocksQuery(httptest.NewRequest("GET", "/v1/snapshots/default/tuesday/blocks?base=", nil))
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}
