// Package audit keeps the log of what operators had done: who, what, to which
// object, and why (docs/adr/0014-what-an-operator-may-do.md).
//
// Owns: the files audit.log and objects.log of a directory, JSON lines, and their older ones.
//
// Does not: decide who may do what, nor do it.
//
// An act has two lines: one that is on the disk before the act begins, and one
// with its outcome. A first line without a second is an act that a crash cut
// off. What was applied, withdrawn and deleted through the API loses nothing, is far more
// often, and has a line each in a log of its own ([Log.Note]), so that it pushes no act of
// an operator out. Lines are only ever added; the file is bounded by [maxBytes] and the
// number of older ones by [maxOld].
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/clip"
)

// Name is the log's file in its directory; older ones are Name.1 (the latest)
// to Name.4.
const Name = "audit.log"

// NotesName is the file of the log that [OpenNotes] opens.
const NotesName = "objects.log"

const (
	// maxBytes is the size beyond which a new file is begun.
	maxBytes = 1 << 20
	// maxOld is how many older files are kept.
	maxOld = 4
	// maxText bounds each text of a line, in bytes.
	maxText = 4 << 10
)

// By is who asked, as the kernel vouches for it (SO_PEERCRED).
type By struct {
	UID uint32 `json:"uid"`
	PID int32  `json:"pid"`
	// LoginUID is who logged in before sudo, from /proc/PID/loginuid; nil where
	// the kernel does not know.
	LoginUID *uint32 `json:"loginUID,omitempty"`
	// Program is the caller's name (/proc/PID/comm); "" where it has ended.
	Program string `json:"program,omitempty"`
}

// Peer completes what a socket tells of its other end. It reads /proc only; what
// it reads is for people, since the process may have ended meanwhile.
func Peer(uid uint32, pid int32) By {
	by := By{UID: uid, PID: pid}
	proc := "/proc/" + strconv.Itoa(int(pid))
	if comm, err := os.ReadFile(proc + "/comm"); err == nil {
		by.Program = strings.TrimSpace(string(comm))
	}
	if text, err := os.ReadFile(proc + "/loginuid"); err == nil {
		id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if login := uint32(id); err == nil && login != ^uint32(0) {
			by.LoginUID = &login
		}
	}
	return by
}

// Act is what is to be done.
type Act struct {
	By By `json:"by"`
	// Verb is the operator's ("forget").
	Verb string `json:"verb"`
	// Object is what it is done to; "" where it is the node.
	Object string `json:"object,omitempty"`
	// Reason is the operator's own words; never a secret.
	Reason string `json:"reason,omitempty"`
	// Detail is what the verb was told or found besides ("even mounted").
	Detail string `json:"detail,omitempty"`
}

// Line is one line of the log: an act that begins, or the outcome of one.
type Line struct {
	Time time.Time `json:"time"`
	// Act identifies the act in this log: its time in nanoseconds, made unique.
	Act int64 `json:"act"`
	// Begins is set on the first line of an act.
	Begins *Act `json:"begins,omitempty"`
	// Done and Error are the outcome on the second.
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	// Result is what was done, for people, where that is not plain.
	Result string `json:"result,omitempty"`
}

// Log is an open audit log. Its methods may be called by any goroutine.
type Log struct {
	dir, name string
	now       func() time.Time

	mu   sync.Mutex // guards what follows, and the order of lines
	last int64
}

// Open returns the log in dir, which must exist. Nothing is written before the
// first act. now is the clock; nil means time.Now.
func Open(dir string, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{dir: dir, name: Name, now: now}
}

// OpenNotes returns, as Open does, the log of what was done to objects.
func OpenNotes(dir string, now func() time.Time) *Log {
	l := Open(dir, now)
	l.name = NotesName
	return l
}

// Note adds a line about what was done already, and its outcome. Unlike the lines of Do
// it is on the disk when the kernel writes it there.
func (l *Log) Note(a Act, result string, failure error) error {
	a.Object, a.Reason, a.Detail = cut(a.Object), cut(a.Reason), cut(a.Detail)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.last = max(l.last+1, now.UnixNano())
	line := Line{Time: now, Act: l.last, Begins: &a, Done: failure == nil, Result: cut(result)}
	if failure != nil {
		line.Error = cut(failure.Error())
	}
	return l.append(line, func(*os.File) error { return nil })
}

// Do has the act in the log, durably, before do is called, and its outcome
// after. Where the first cannot be written do is not called; an error of the
// second is joined to do's. What do returns besides is told in the log.
func (l *Log) Do(a Act, do func() (result string, err error)) error {
	id, err := l.begin(a)
	if err != nil {
		return fmt.Errorf("%s: nothing was done, since the audit log cannot be written: %w", a.Verb, err)
	}
	result, err := do()
	end := Line{Act: id, Done: err == nil, Result: cut(result)}
	if err != nil {
		end.Error = cut(err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end.Time = l.now()
	if logErr := l.add(end); logErr != nil {
		return errors.Join(err, fmt.Errorf("write the outcome of %s to the audit log: %w", a.Verb, logErr))
	}
	return err
}

func (l *Log) begin(a Act) (int64, error) {
	a.Object, a.Reason, a.Detail = cut(a.Object), cut(a.Reason), cut(a.Detail)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.last = max(l.last+1, now.UnixNano())
	return l.last, l.add(Line{Time: now, Act: l.last, Begins: &a})
}

// add appends a line and returns when it is on the disk; mu is held.
func (l *Log) add(line Line) error {
	return l.append(line, func(f *os.File) error { return errors.Join(f.Sync(), syncDir(l.dir)) })
}

// append adds a line and has keep see to it that it stays; mu is held.
func (l *Log) append(line Line, keep func(*os.File) error) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := l.rotate(int64(len(text))); err != nil {
		return fmt.Errorf("begin a new file: %w", err)
	}
	f, err := os.OpenFile(l.path(), os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if torn(f) {
		text = append([]byte("\n"), text...) // a line that a crash cut off is no part of this one
	}
	_, err = f.Write(text)
	return errors.Join(err, keep(f), f.Close())
}

// torn reports whether the file's last line has no end.
func torn(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, st.Size()-1)
	return err == nil && last[0] != '\n'
}

// rotate makes room for n bytes more.
func (l *Log) rotate(n int64) error {
	st, err := os.Stat(l.path())
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size()+n <= maxBytes {
		return nil
	}
	if err != nil {
		return err
	}
	for i := maxOld - 1; i >= 1; i-- {
		if err := os.Rename(l.old(i), l.old(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(l.path(), l.old(1))
}

func (l *Log) path() string     { return filepath.Join(l.dir, l.name) }
func (l *Log) old(i int) string { return l.path() + "." + strconv.Itoa(i) }

// Lines returns what the log holds, oldest first. A line that cannot be read,
// as one that a crash cut off, is left out.
func (l *Log) Lines() ([]Line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []Line
	for i := maxOld; i >= 0; i-- {
		path := l.path()
		if i > 0 {
			path = l.old(i)
		}
		more, err := readLines(path)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func readLines(path string) ([]Line, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 2*maxBytes))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var lines []Line
	for text := range bytes.SplitSeq(data, []byte("\n")) {
		var line Line
		if json.Unmarshal(text, &line) == nil && line.Act != 0 {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func cut(s string) string { return clip.Text(s, maxText, "…") }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
