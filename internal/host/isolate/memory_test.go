package isolate

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

// eat allocates as many MiB as the request says, and returns its process id, the number and
// the OOM score.
func eat(_ context.Context, request []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(request))
	if err != nil {
		return nil, err
	}
	taken := make([][]byte, n)
	for i := range taken {
		taken[i] = make([]byte, 1<<20)
		for at := 0; at < len(taken[i]); at += 4096 {
			taken[i][at] = 1
		}
	}
	score, err := os.ReadFile(scoreFile)
	if err != nil {
		return nil, err
	}
	return []byte(strconv.Quote(strconv.Itoa(os.Getpid()) + " " + strconv.Itoa(len(taken)) + " " + strings.TrimSpace(string(score)))), nil
}

// A call that exceeds its memory limit ends its helper and fails; the limit applies to that
// call alone.
func TestMemoryOfACallIsBounded(t *testing.T) {
	p := newPool(t, Config{Command: helperCommand})
	small := p.mustDo(t, "a", "eat a bound", "20")
	if _, err := p.Do(t.Context(), "a", "eat a bound", []byte("500")); !errors.Is(err, ErrLost) {
		t.Errorf("500 MiB of 128: got %v, want ErrLost", err)
	}
	again := p.mustDo(t, "a", "eat a bound", "20")
	if again == small {
		t.Errorf("the helper lives on: %s", again)
	}
	if free := p.mustDo(t, "a", "eat", "200"); pidOf(free) != pidOf(again) {
		t.Errorf("a call without a limit after one with: by %s, want the helper of %s", free, again)
	}
}

func pidOf(reply string) string {
	pid, _, _ := strings.Cut(reply, " ")
	return pid
}
