package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// The log is a preallocated file of zeros, in which frames follow each other:
//
//	length of the body  4 bytes, little endian; 0 ends the log
//	CRC-32C of what follows  4 bytes
//	sequence number     8 bytes, one more than the frame before
//	body                for each change: key and value, each with its length in
//	                    4 bytes before it; a value of length 2^32-1 deletes
//
// A write is one pwrite and one fdatasync, which flushes no metadata since the blocks exist already.
// When the file is full, all live records are written to a new one, which replaces it by rename.
const (
	frameHead   = 16
	minLogBytes = 4 << 20
	deleted     = ^uint32(0)
)

// ErrDamaged means that sound frames follow a damaged one: a torn write cannot cause that.
var ErrDamaged = errors.New("the log is damaged")

type wal struct {
	dir  string
	file *os.File
	size int64 // of the file
	end  int64 // where the next frame goes
	seq  uint64
	live map[string][]byte
	// dirty means that a write failed, so the content of the disk is not known.
	dirty error
}

// OpenWAL opens the log in dir, or makes one. It drops a last frame that was not written
// whole: its Write never returned.
func OpenWAL(dir string) (Store, error) {
	w := &wal{dir: dir, live: map[string][]byte{}}
	data, err := os.ReadFile(w.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return w, w.compact()
	case err != nil:
		return nil, err
	}
	if err := w.replay(data); err != nil {
		return nil, fmt.Errorf("open log %s: %w", w.path(), err)
	}
	// A new file has no torn frame, and is compact.
	return w, w.compact()
}

func (w *wal) path() string { return filepath.Join(w.dir, "journal.log") }

func (w *wal) replay(data []byte) error {
	for len(data) >= frameHead {
		body, seq, ok := frame(data)
		if !ok {
			return w.tornOrDamaged(data)
		}
		if w.seq != 0 && seq != w.seq+1 {
			return fmt.Errorf("%w: frame %d follows frame %d", ErrDamaged, seq, w.seq)
		}
		if err := w.apply(body); err != nil {
			return err
		}
		w.seq = seq
		data = data[frameHead+len(body):]
	}
	return nil
}

// frame returns the frame at the start of data, if it is whole.
func frame(data []byte) (body []byte, seq uint64, ok bool) {
	n := int64(binary.LittleEndian.Uint32(data))
	if n == 0 || frameHead+n > int64(len(data)) {
		return nil, 0, false
	}
	if crc32.Checksum(data[8:frameHead+n], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(data[4:]) {
		return nil, 0, false
	}
	return data[frameHead : frameHead+n], binary.LittleEndian.Uint64(data[8:]), true
}

// tornOrDamaged checks whether a sound frame follows the bad one.
func (w *wal) tornOrDamaged(data []byte) error {
	for i := 1; i+frameHead <= len(data); i++ {
		if binary.LittleEndian.Uint32(data[i:]) == 0 {
			continue
		}
		if _, seq, ok := frame(data[i:]); ok && seq > w.seq {
			return fmt.Errorf("%w: frame %d is sound, and one before it is not", ErrDamaged, seq)
		}
	}
	return nil
}

func (w *wal) apply(body []byte) error {
	for len(body) > 0 {
		key, rest, ok := take(body)
		if !ok || key == nil {
			return fmt.Errorf("%w: a key ends behind its frame", ErrDamaged)
		}
		value, rest, ok := take(rest)
		if !ok {
			return fmt.Errorf("%w: the value of %q ends behind its frame", ErrDamaged, key)
		}
		if value == nil {
			delete(w.live, string(key))
		} else {
			w.live[string(key)] = bytes.Clone(value)
		}
		body = rest
	}
	return nil
}

// take cuts off one length and its bytes; a deletion is nil.
func take(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; n == deleted {
		return nil, b, true
	}
	if int64(n) > int64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

func encode(seq uint64, changes map[string][]byte) []byte {
	out := make([]byte, frameHead, frameHead+1200*len(changes))
	for key, value := range changes {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(key)))
		out = append(out, key...)
		if value == nil {
			out = binary.LittleEndian.AppendUint32(out, deleted)
			continue
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(value)))
		out = append(out, value...)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)-frameHead))
	binary.LittleEndian.PutUint64(out[8:], seq)
	binary.LittleEndian.PutUint32(out[4:], crc32.Checksum(out[8:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func (w *wal) Write(changes map[string][]byte) error {
	if w.dirty != nil {
		return w.dirty
	}
	if len(changes) == 0 {
		return nil
	}
	f := encode(w.seq+1, changes)
	if w.end+int64(len(f))+frameHead > w.size {
		w.change(changes)
		return w.failed(w.compact())
	}
	if _, err := w.file.WriteAt(f, w.end); err != nil {
		return w.failed(err)
	}
	if err := datasync(w.file); err != nil {
		return w.failed(err)
	}
	w.end += int64(len(f))
	w.seq++
	w.change(changes)
	return nil
}

func (w *wal) failed(err error) error {
	if err != nil {
		w.dirty = fmt.Errorf("write log %s: %w", w.path(), err)
	}
	return w.dirty
}

func (w *wal) change(changes map[string][]byte) {
	for key, value := range changes {
		if value == nil {
			delete(w.live, key)
		} else {
			w.live[key] = bytes.Clone(value)
		}
	}
}

func (w *wal) Load() (map[string][]byte, error) { return maps.Clone(w.live), nil }

func (w *wal) Close() error { return w.file.Close() }
