// Package audit writes the log of operators' acts: who did what to which object, and
// why (docs/adr/0014-what-an-operator-may-do.md).
//
// Owns: the files audit.log and objects.log of a directory, as JSON lines, and their
// rotated predecessors.
//
// Does not: decide who may do what, nor do it.
//
// An act has two lines: one that is on disk before the act begins, and one with its
// outcome. A first line without a second is an act that a crash interrupted. Applying,
// withdrawing and deleting objects through the API loses no data and is far more
// frequent. Such requests get one line each in a log of their own ([Log.Note]), so that
// they never rotate operators' acts out. Lines are only appended; [maxBytes] bounds the
// file and [maxOld] the number of rotated files.
package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
)

// Name is the log's file in its directory; the rotated files are Name.1 (the latest) to
// Name.4.
const Name = "audit.log"

// NotesName is the file of the lines of [Log.Note].
const NotesName = "objects.log"

const (
	// maxBytes is the size beyond which a new file is begun.
	maxBytes = 1 << 20
	// maxOld is how many rotated files are kept.
	maxOld = 4
	// maxText bounds each text in a line (bytes).
	maxText = 4 << 10
)

// By is the process that made a request, with its credentials from the kernel
// (SO_PEERCRED).
type By struct {
	UID uint32 `json:"uid"`
	PID int32  `json:"pid"`
	// LoginUID is the user who logged in before sudo, from /proc/PID/loginuid; nil if
	// the kernel does not know.
	LoginUID *uint32 `json:"loginUID,omitempty"`
	// Program is the process's name (/proc/PID/comm); "" if the process has ended.
	Program string `json:"program,omitempty"`
}

// Peer adds details from /proc to the credentials of a socket's other end. The details
// are only for people, since the process may have ended and its pid been reused.
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

// Act describes an act.
type Act struct {
	By By `json:"by"`
	// Verb is what is done ("forget").
	Verb string `json:"verb"`
	// Object is the object of the act; "" if that is the node.
	Object string `json:"object,omitempty"`
	// Reason is the operator's reason; never a secret.
	Reason string `json:"reason,omitempty"`
	// Detail is an option or finding of the act ("even mounted").
	Detail string `json:"detail,omitempty"`
}

// Line is one line of the log: the beginning of an act, or its outcome.
type Line struct {
	Time time.Time `json:"time"`
	// Act identifies the act in this log: its time in nanoseconds, made unique.
	Act int64 `json:"act"`
	// Begins is set on the first line of an act.
	Begins *Act `json:"begins,omitempty"`
	// Done and Error are the outcome, on the second line.
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	// Result says what was done, for people, if the act does not say it.
	Result string `json:"result,omitempty"`
}

// Log is the audit log of one directory. Its methods may be called by any goroutine.
type Log struct {
	now func() time.Time

	mu    sync.Mutex // guards what follows, and the order of lines
	acts  file
	notes file
	last  int64
}

// Open returns the log in dir, which must exist. It writes nothing before the first act.
// now is the clock; nil means time.Now. Close the log after use.
func Open(dir string, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{now: now, acts: file{path: filepath.Join(dir, Name)}, notes: file{path: filepath.Join(dir, NotesName)}}
}

// Close closes the log's files. A later call of Do or Note opens them again.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.acts.close(), l.notes.close())
}

// Note adds a line about an act that has ended, to the log of objects. Unlike the lines of
// Do, the line reaches the disk when the kernel writes it back.
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
	return l.notes.add(line)
}

// Do writes the act durably to the log, calls do, and writes the outcome. If it cannot
// write the act, it does not call do. It joins an error from writing the outcome to
// do's error. The result of do goes into the log.
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
	if logErr := l.acts.addDurably(end); logErr != nil {
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
	return l.last, l.acts.addDurably(Line{Time: now, Act: l.last, Begins: &a})
}

// Lines returns the lines about acts, oldest first. It skips a line that cannot be read,
// for example because a crash cut it off.
func (l *Log) Lines() ([]Line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acts.lines()
}

func cut(s string) string { return clip.Text(s, maxText, "…") }
