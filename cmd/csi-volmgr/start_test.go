package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Every helper process pays for what packages do before main: the daemon's part of it stays small. An expression
// with a count such as {0,251} costs 100 KB.
func TestNoPackageOfTheProgramAllocatesMuchBeforeMain(t *testing.T) {
	const most = 100 << 10
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for lines := bufio.NewScanner(&trace); lines.Scan(); {
		// init PACKAGE @5.3 ms, 0.64 ms clock, 200640 bytes, 1061 allocs
		words := strings.Fields(lines.Text())
		if len(words) < 11 || words[0] != "init" || !strings.HasPrefix(words[1], "github.com/csi-volmgr/") {
			continue
		}
		seen++
		size, err := strconv.Atoi(words[7])
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if size > most {
			t.Errorf("%s allocates %d bytes before main, want at most %d", words[1], size, most)
		}
	}
	if seen < 10 {
		t.Errorf("%d packages of the program in the trace:\n%s", seen, trace.String())
	}
}
