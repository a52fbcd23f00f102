package journal

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The journal of a machine with the other byte order is named as that. It and its spare copy stay as they are, also
// if the spare copy is sound here: amd64 wrote one of the files, s390x the other.
func TestAJournalOfTheOtherByteOrderIsNamedAndLeftAlone(t *testing.T) {
	file := "state-s390x.db.gz"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		file = "state-ff69975.db.gz"
	}
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	must(t, b.Close()) // makes a spare copy
	data, spare := unpacked(t, file), read(t, path+spareSuffix)
	write(t, path, data)

	_, err := OpenBolt(path)
	if !errors.Is(err, ErrByteOrder) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "move it and its spare copy away") {
		t.Errorf("open: %v", err)
	}
	if i, _ := Inspect(path); !errors.Is(i.Err, ErrByteOrder) {
		t.Errorf("inspect: %v", i.Err)
	}
	if string(read(t, path)) != string(data) || string(read(t, path+spareSuffix)) != string(spare) {
		t.Error("the journal or its spare copy was changed")
	}
	if _, err := os.Stat(path + damagedSuffix); err == nil {
		t.Error("the journal was put aside as a damaged one")
	}

	must(t, os.Remove(path))
	write(t, path+spareSuffix, data)
	if _, err := OpenBolt(path); !errors.Is(err, ErrByteOrder) || string(read(t, path+spareSuffix)) != string(data) {
		t.Errorf("a spare copy alone: %v", err)
	}
}

// On a processor of 32 bits the room of a disk of many gigabytes is a number of 64.
func TestTheRoomOfALargeDisk(t *testing.T) {
	st := unix.Statfs_t{Blocks: 4 << 20, Bavail: 1 << 20, Frsize: 4096}
	if free, size := bytesOf(st); free != 4<<30 || size != 16<<30 {
		t.Errorf("%d of %d bytes", free, size)
	}
}
