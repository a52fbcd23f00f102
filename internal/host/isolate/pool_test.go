package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is also the helper that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := Serve(context.Background(), service()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var errFire = errors.New("the disk is on fire")

// service has the handlers of the tests.
func service() Service {
	return Service{Errors: []error{errFire}, Handlers: map[string]Handler{
		"echo": func(_ context.Context, request []byte) ([]byte, error) { return request, nil },
		"pid":  func(context.Context, []byte) ([]byte, error) { return []byte(strconv.Itoa(os.Getpid())), nil },
		"fail": func(context.Context, []byte) ([]byte, error) {
			return nil, fmt.Errorf("write: %w: %w", errFire, os.NewSyscallError("pwrite", unix.EIO))
		},
		// hang opens a FIFO, which returns when a process opens its other end.
		"hang": func(_ context.Context, request []byte) ([]byte, error) {
			path, err := strconv.Unquote(string(request))
			if err != nil {
				return nil, err
			}
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			return []byte(`"returned"`), unix.Close(fd)
		},
		"wait": func(ctx context.Context, request []byte) ([]byte, error) {
			path, err := strconv.Unquote(string(request))
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil { // the call has begun
				return nil, err
			}
			<-ctx.Done()
			return nil, os.Remove(path)
		},
		"count": func(ctx context.Context, request []byte) ([]byte, error) {
			for i := range int64(3) {
				Report(ctx, i+1)
			}
			return request, nil
		},
		"die":         func(context.Context, []byte) ([]byte, error) { os.Exit(7); return nil, nil },
		"eat":         eat,
		"eat a bound": eat,
	}, Memory: map[string]int64{"eat a bound": 128 << 20}}
}

func newPool(t *testing.T, cfg Config) *Pool {
	t.Helper()
	p := New(cfg)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func helperCommand() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "helper")
	cmd.Stderr = os.Stderr
	return cmd
}

// eachKind runs a test with processes and with goroutines.
func eachKind(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Run("processes", func(t *testing.T) { test(t, Config{Command: helperCommand, Service: service()}) })
	t.Run("goroutines", func(t *testing.T) { test(t, Config{Service: service()}) })
}

func (p *Pool) mustDo(t *testing.T, key, name, request string) string {
	t.Helper()
	reply, err := p.Do(t.Context(), key, name, []byte(request))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(reply)
}

func TestRepliesAndErrorsComeBack(t *testing.T) {
	eachKind(t, func(t *testing.T, cfg Config) {
		p := newPool(t, cfg)
		if got := p.mustDo(t, "a", "echo", `{"x":"y"}`); got != `{"x":"y"}` {
			t.Errorf("echo: got %s", got)
		}
		if _, err := p.Do(t.Context(), "a", "fail", nil); err == nil || err.Error() != "write: the disk is on fire: pwrite: input/output error" || !errors.Is(err, errFire) || !errors.Is(err, unix.EIO) || errors.Is(err, unix.EBUSY) {
			t.Errorf("fail: got %v", err)
		}
		if _, err := p.Do(t.Context(), "a", "no such", nil); err == nil || !strings.Contains(err.Error(), "no such") {
			t.Errorf("unknown call: got %v", err)
		}
		over, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := p.Do(over, "a", "echo", nil); err == nil || err.Error() != "enough" {
			t.Errorf("with a context that ended: got %v", err)
		}
	})
}

// Progress comes before the answer, in order, and goes to no other call.
func TestProgressComesBeforeTheAnswer(t *testing.T) {
	eachKind(t, func(t *testing.T, cfg Config) {
		p := newPool(t, cfg)
		for range 3 {
			var told []int64
			reply, err := p.Do(WithProgress(t.Context(), func(done int64) { told = append(told, done) }), "a", "count", []byte("1"))
			if err != nil || string(reply) != "1" || len(told) != 3 || told[0] != 1 || told[2] != 3 {
				t.Fatalf("got %s, %v, told %v", reply, err, told)
			}
			if got := p.mustDo(t, "a", "count", "2"); got != "2" || len(told) != 3 {
				t.Fatalf("no caller asks: got %s, told %v", got, told)
			}
		}
	})
}

// Progress that a handler reports after its answer does not go to the next call.
func TestProgressAfterTheAnswerIsNotSent(t *testing.T) {
	var out strings.Builder
	r := &reply{out: json.NewEncoder(&out)}
	r.progress(1)
	r.send(answer{Reply: []byte("7")})
	r.progress(2)
	if got := out.String(); got != "{\"progress\":1}\n{\"reply\":7}\n" {
		t.Errorf("sent %q", got)
	}
}

// A helper is a process of its own, and serves again and again.
func TestHelperIsReused(t *testing.T) {
	p := newPool(t, Config{Command: helperCommand})
	first := p.mustDo(t, "a", "pid", "")
	for i := range 50 {
		if got := p.mustDo(t, strconv.Itoa(i), "pid", ""); got != first || got == strconv.Itoa(os.Getpid()) {
			t.Fatalf("call %d: done by process %s, want %s and not this one", i, got, first)
		}
	}
	if s := p.Stats(); s.Helpers != 1 || len(s.Hung) != 0 {
		t.Errorf("stats: got %+v, want one helper", s)
	}
}

// fifo makes a FIFO, and returns its path and a function that ends a call which hangs on it.
func fifo(t *testing.T) (path string, release func()) {
	t.Helper()
	path = t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the other side
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
	}
}

// Rule 9: a call that hangs blocks its key and costs one helper. The next call for the key
// fails at once and says since when it hangs; other keys are served; and once the call
// returns, everything is as before.
func TestCallThatHangsHoldsUpItsKeyOnly(t *testing.T) {
	eachKind(t, func(t *testing.T, cfg Config) {
		returned := make(chan string, 1)
		cfg.OnReturn = func(key string) { returned <- key }
		p := newPool(t, cfg)
		path, release := fifo(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := p.Do(ctx, "frozen", "hang", []byte(strconv.Quote(path)))
			errs <- err
		}()
		for p.busy() == 0 { // until the call has begun
			p.mustDo(t, "other", "echo", "1")
		}
		cancel(errors.New("out of patience"))
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "out of patience") {
			t.Errorf("the call that hangs: got %v", err)
		}
		_, err := p.Do(t.Context(), "frozen", "echo", nil)
		hang, ok := errors.AsType[*HangError](err)
		if !ok || !errors.Is(err, ErrHangs) || hang.Call != "hang" || hang.Since.IsZero() || !strings.Contains(err.Error(), "frozen") {
			t.Fatalf("the next call: got %v, want a HangError", err)
		}
		if s := p.Stats(); len(s.Hung) != 1 || s.Hung[0].Key != "frozen" || s.Hung[0].Since != hang.Since {
			t.Errorf("stats: %+v", s)
		}
		for i := range 20 {
			p.mustDo(t, "other"+strconv.Itoa(i), "echo", "1")
		}
		idle := p.Idle("frozen")
		select {
		case <-idle:
			t.Error("the key is said to be idle while its call hangs")
		case <-p.Idle("other"):
		}
		release()
		<-idle
		<-p.Idle("frozen")
		if key := <-returned; key != "frozen" {
			t.Errorf("returned: got %q", key)
		}
		if got := p.mustDo(t, "frozen", "echo", "2"); got != "2" {
			t.Errorf("afterwards: got %s", got)
		}
		if s := p.Stats(); len(s.Hung) != 0 {
			t.Errorf("stats afterwards: %+v", s)
		}
	})
}

// busy counts the keys under way.
func (p *Pool) busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// Two calls for one key run one after the other.
func TestCallsOfAKeyAreMadeInTurn(t *testing.T) {
	running, most := 0, 0
	var mu sync.Mutex
	p := newPool(t, Config{Service: Service{Handlers: map[string]Handler{"count": func(context.Context, []byte) ([]byte, error) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		mu.Lock()
		running--
		mu.Unlock()
		return nil, nil
	}}}})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { p.mustDo(t, "one", "count", "") })
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("calls at once for one key: %d", most)
	}
}

// If as many calls hang as the limit allows, the next one is refused at once and waits for
// none of them; once a helper is free again, calls are served.
func TestHelpersAreBounded(t *testing.T) {
	const limit = 3
	p := newPool(t, Config{Command: helperCommand, Limit: limit, Workers: 2})
	var releases []func()
	for i := range limit {
		path, release := fifo(t)
		releases = append(releases, release)
		ctx, cancel := context.WithCancel(WithShares(t.Context(), Share{Name: strconv.Itoa(i), Percent: 100}))
		errs := make(chan error, 1)
		go func() {
			_, err := p.Do(ctx, strconv.Itoa(i), "hang", []byte(strconv.Quote(path)))
			errs <- err
		}()
		for p.busy() != i+1 {
			p.markSlowOnce()
		}
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Fatalf("call %d: got %v", i, err)
		}
	}
	ctx := WithShares(t.Context(), Share{Name: "more", Percent: 100})
	if _, err := p.Do(ctx, "more", "echo", []byte("1")); !errors.Is(err, ErrLimit) {
		t.Errorf("call beyond the limit: got %v, want ErrLimit", err)
	}
	for _, release := range releases {
		release()
	}
	for p.busy() > 0 {
		p.markSlowOnce()
	}
	p.mustDo(t, "more", "echo", "1")
}

// markSlowOnce waits for a change of the pool.
func (p *Pool) markSlowOnce() {
	p.mu.Lock()
	changed, busy := p.changed, len(p.calls)
	p.mu.Unlock()
	if busy == 0 {
		unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
		return
	}
	<-changed
}

// A handler's context ends when no caller waits any more.
func TestHandlerIsToldOfTheEndOfTheWait(t *testing.T) {
	eachKind(t, func(t *testing.T, cfg Config) {
		returned := make(chan string, 1)
		cfg.OnReturn = func(key string) { returned <- key }
		p := newPool(t, cfg)
		path := t.TempDir() + "/begun"
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := p.Do(ctx, "a", "wait", []byte(strconv.Quote(path)))
			errs <- err
		}()
		for {
			if _, err := os.Stat(path); err == nil {
				break
			}
		}
		cancel()
		<-errs // the call may just have returned by itself
		for p.busy() > 0 {
			p.markSlowOnce()
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the handler did not end: %v", err)
		}
		p.mustDo(t, "a", "echo", "1")
	})
}

// A helper that dies during a call fails that call; if it is killed between calls, no call fails.
func TestHelperThatDiesIsReplaced(t *testing.T) {
	p := newPool(t, Config{Command: helperCommand})
	if _, err := p.Do(t.Context(), "a", "die", nil); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("die: got %v, want how it ended", err)
	}
	pid, err := strconv.Atoi(p.mustDo(t, "a", "pid", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Its socket may be open until the process is a zombie.
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if got := p.mustDo(t, "a", "pid", ""); got == strconv.Itoa(pid) {
		t.Error("the killed process answered")
	}
}

// If a helper cannot be started, each call fails with an error that says so.
func TestHelperThatCannotStart(t *testing.T) {
	p := newPool(t, Config{Command: func() *exec.Cmd { return exec.Command("/no/such/program") }})
	for range 2 {
		if _, err := p.Do(t.Context(), "a", "echo", nil); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("got %v", err)
		}
	}
	if s := p.Stats(); s.Helpers != 0 {
		t.Errorf("helpers: got %d, want 0", s.Helpers)
	}
}

// Close says what hangs, and no call begins after it.
func TestCloseSaysWhatHangs(t *testing.T) {
	p := New(Config{Command: helperCommand})
	path, release := fifo(t)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := p.Do(ctx, "a", "hang", []byte(strconv.Quote(path)))
		errs <- err
	}()
	for p.busy() == 0 {
		p.markSlowOnce()
	}
	cancel()
	<-errs
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "1 of its calls hang") {
		t.Errorf("close: got %v", err)
	}
	if _, err := p.Do(t.Context(), "b", "echo", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: got %v", err)
	}
	release()
	for p.busy() > 0 {
		p.markSlowOnce()
	}
}

// BenchmarkCall measures the overhead of a call.
func BenchmarkCall(b *testing.B) {
	for name, cfg := range map[string]Config{"process": {Command: helperCommand}, "goroutine": {Service: service()}} {
		b.Run(name, func(b *testing.B) {
			p := New(cfg)
			defer p.Close()
			request := []byte(`{"path":"/var/lib/kubelet/pods/1/volumes/x/mount"}`)
			for b.Loop() {
				if _, err := p.Do(b.Context(), "a", "echo", request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
