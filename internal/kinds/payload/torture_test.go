package payload_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
)

var updates = flag.Int("updates", 150, "how many updates readers are hammered with")

// TestReaderSeesOneSetOrTheOther runs readers against a writer that never rests, like a
// pod's programs while its ConfigMap changes. They read files by name, and all files of
// one version through its directory.
// Items: L04, L16.
func TestReaderSeesOneSetOrTheOther(t *testing.T) {
	v := newVolume(t)
	v.now = time.Now
	gid := int64(4711)
	set := func(i int) payload.Files {
		content := text(strings.Repeat(fmt.Sprint(i%10), 100+i%7))
		return payload.Files{"a": content, "b": content, "d/c": content, fmt.Sprintf("only-%d", i): content}
	}
	write := func(i int) {
		if _, err := v.write(t.Context(), set(i), &gid); err != nil {
			t.Error(err)
		}
	}
	write(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, read := range []func(string) error{readByName, readBySet, readByName, readBySet} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := read(v.path); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range *updates {
		write(i)
	}
	close(done)
	wg.Wait()
}

// readByName reads files by name; each must exist and be complete.
func readByName(dir string) error {
	for _, name := range []string{"a", "b", "d/c"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		data, err := io.ReadAll(f)
		err = errors.Join(err, ours(f), f.Close())
		if err != nil {
			return err
		}
		if len(data) < 100 || strings.Trim(string(data), string(data[:1])) != "" {
			return fmt.Errorf("%s: got %q, want one whole file", name, data)
		}
	}
	return nil
}

// ours returns an error if the group cannot read the file.
func ours(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Gid != 4711 || st.Mode&0o040 == 0 {
		return fmt.Errorf("%s: group %d, mode %o", f.Name(), st.Gid, st.Mode)
	}
	return nil
}

// readBySet opens one set's directory; all its files must exist and agree.
func readBySet(dir string) error {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if err != nil {
		return err
	}
	defer root.Close()
	var all []string
	for _, name := range []string{"a", "b", "d/c"} {
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(f)
		err = errors.Join(err, ours(f), f.Close())
		if err != nil {
			return err
		}
		all = append(all, string(data))
	}
	if all[0] != all[1] || all[0] != all[2] {
		return fmt.Errorf("one set has %q", all)
	}
	return nil
}
