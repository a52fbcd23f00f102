package csistrict

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Kinds of events in a transcript.
const (
	EventUp     = "up"     // the driver's process began
	EventBegin  = "begin"  // a call arrived
	EventEnd    = "end"    // a call was answered, or could not be, because the caller had left
	EventBreach = "breach" // a call broke a rule
	EventFault  = "fault"  // the script made the driver misbehave
)

// Event is one line of a transcript.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// ID identifies a call of one process.
	ID     uint64 `json:"id,omitempty"`
	Call   string `json:"call,omitempty"`
	Volume string `json:"volume,omitempty"`
	// Request is the request, without the values of secrets and tokens.
	Request json.RawMessage `json:"request,omitempty"`
	// SecretKeys are the keys of the request's secrets, sorted.
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Tokens: the request's volume context has service account tokens.
	Tokens bool `json:"tokens,omitempty"`
	// Code is the answer's gRPC code by name; "OK" for success.
	Code string `json:"code,omitempty"`
	// Lost: when the call ended, its caller had left, so nothing received the answer.
	Lost bool   `json:"lost,omitempty"`
	Rule string `json:"rule,omitempty"`
	Text string `json:"text,omitempty"`
}

// transcript is a file that events are appended to.
type transcript struct {
	mu sync.Mutex
	f  *os.File
}

// openTranscript opens the file at path for a new process. It removes a last line that was cut off:
// the kernel ends the write of a killed process at a page boundary.
func openTranscript(path string) (*transcript, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open transcript: %w", err)
	}
	text, err := io.ReadAll(f)
	if err == nil {
		err = f.Truncate(int64(bytes.LastIndexByte(text, '\n') + 1))
	}
	if err != nil {
		return nil, fmt.Errorf("open transcript: %w", errors.Join(err, f.Close()))
	}
	return &transcript{f: f}, nil
}

// write appends e in one piece.
func (t *transcript) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write transcript: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write transcript: %w", err)
	}
	return nil
}

// ReadTranscript reads all events of the driver with the state directory dir. It omits
// a line that is still being written.
func ReadTranscript(dir string) ([]Event, error) {
	f, err := os.Open(transcriptPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read transcript: %w", err)
	}
	defer f.Close()
	var events []Event
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events, nil // the end, or a line that has no end yet
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read transcript: %w", err)
		}
		events = append(events, e)
	}
}

// Breaches returns the breaches among the events.
func Breaches(events []Event) (breaches []Event) {
	for _, e := range events {
		if e.Event == EventBreach {
			breaches = append(breaches, e)
		}
	}
	return breaches
}
