package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// env is what the runs of one cell share: directories, a driver, an API server.
type env struct {
	cell
	dir, drvSock, drvCtl, regDir, apiURL, apiCtl string
	drv, server                                  *exec.Cmd
}

// area returns the directory for a file system's cells, and that of the driver's backing.
// Binding a directory costs the kernel time in proportion to the mounts directly on the
// mount that contains it (all of them, if the backing directories share a file system with
// the pods'): if possible the driver has a file system of its own, so that its own cost is
// linear, as with real devices.
func area(fs string) (dir, backing string) {
	return filepath.Join(*work, fs), filepath.Join(*work, fs+"-backing")
}

// mountAreas makes and mounts the directories.
func mountAreas() error {
	for _, fs := range []string{"tmpfs", "disk"} {
		dir, backing := area(fs)
		for _, d := range []string{dir, backing} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
			if fs != "tmpfs" {
				continue
			}
			if err := syscall.Mount("tmpfs", d, "tmpfs", 0, "size=2g,mode=755"); err != nil {
				return fmt.Errorf("mount %s: %w (the harness needs root and a mount namespace of its own)", d, err)
			}
		}
	}
	return nil
}

// program splits a system's command into program and arguments.
func program(p string) (string, []string) {
	f := strings.Fields(p)
	for i, w := range f {
		if flag, name, ok := strings.Cut(w, "=@"); ok { // a program of --bin
			f[i] = flag + "=" + filepath.Join(*bin, name)
		}
	}
	if !strings.Contains(f[0], "/") {
		f[0] = filepath.Join(*bin, f[0])
	}
	return f[0], f[1:]
}

func start(name string, logf string, args ...string) *exec.Cmd {
	p, more := program(name)
	c := exec.Command(p, append(more, args...)...)
	f, err := os.OpenFile(logf, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	c.Stderr = f
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		log.Fatal(err)
	}
	f.Close()
	return c
}

func setup(c cell) *env {
	dir, backing := area(c.fs)
	e := &env{cell: c, dir: filepath.Join(dir, "cell")}
	benchdef.CleanMounts(e.dir)
	if err := os.RemoveAll(e.dir); err != nil {
		log.Fatal(err)
	}
	e.regDir = filepath.Join(e.dir, "reg")
	_ = os.MkdirAll(e.regDir, 0o755)
	if c.workload == "csi" {
		e.drvSock, e.drvCtl = filepath.Join(e.dir, "csi.sock"), filepath.Join(e.dir, "ctl.sock")
		e.drv = start("benchdriver", filepath.Join(e.dir, "driver.log"), "--mode="+c.mode, "--socket="+e.drvSock, "--registration-dir="+e.regDir,
			"--control-socket="+e.drvCtl, "--backing-dir="+backing, "--latency="+c.latency.String())
		waitFor(e.drvCtl)
	}
	if c.api == "http" {
		e.startAPI()
	}
	e.mountForeign()
	return e
}

func (e *env) startAPI() {
	e.apiCtl = filepath.Join(e.dir, "api.sock")
	af := filepath.Join(e.dir, "api.addr")
	e.server = start("fakeapi", filepath.Join(e.dir, "api.log"), "--address-file="+af, "--control-socket="+e.apiCtl,
		"--workload="+e.workload, fmt.Sprintf("--pods=%d", e.pods), fmt.Sprintf("--volumes=%d", e.volumes))
	for i := 0; ; i++ {
		if b, err := os.ReadFile(af); err == nil && len(b) > 0 {
			e.apiURL = string(b)
			return
		}
		if i > 500 {
			log.Fatal("fakeapi does not start")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// mountForeign makes mounts that belong to no system under test, as containers have them.
func (e *env) mountForeign() {
	if e.foreign == 0 {
		return
	}
	base := filepath.Join(*work, "foreign")
	if err := os.MkdirAll(base, 0o755); err != nil {
		log.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", base, "tmpfs", 0, "size=256m,mode=755"); err != nil {
		log.Fatal(err)
	}
	for i := range e.foreign {
		// A mount on a mount's own file system makes the next one slower (see area), so
		// these come in groups on a file system each.
		group := filepath.Join(base, fmt.Sprint(i/100))
		if i%100 == 0 {
			_ = os.Mkdir(group, 0o755)
			if err := syscall.Mount("tmpfs", group, "tmpfs", 0, "mode=755"); err != nil {
				log.Fatal(err)
			}
			continue
		}
		p := filepath.Join(group, fmt.Sprint(i%100))
		_ = os.Mkdir(p, 0o755)
		if err := syscall.Mount("tmpfs", p, "tmpfs", 0, "mode=755"); err != nil {
			log.Fatal(err)
		}
	}
}

func waitFor(p string) {
	for range 500 {
		if _, err := os.Stat(p); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatalf("%s does not appear", p)
}

func stop(c *exec.Cmd) {
	if c == nil {
		return
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = c.Wait()
}

func (e *env) close() {
	if n := benchdef.CountMounts(e.dir); n > 0 {
		log.Printf("  WARNING: %d mounts left", n)
	}
	stop(e.drv)
	stop(e.server)
	benchdef.CleanMounts(e.dir)
	if e.foreign > 0 {
		benchdef.CleanMounts(filepath.Join(*work, "foreign"))
		_ = syscall.Unmount(filepath.Join(*work, "foreign"), syscall.MNT_DETACH)
	}
}

// procCPU is utime+stime of a live process.
func procCPU(c *exec.Cmd) float64 {
	if c == nil {
		return 0
	}
	s := benchdef.NewMeter(c.Process.Pid).Snap()
	return s.User
}

// once runs a program that appends one Result line, and returns that result.
func (e *env) once(prog string, args ...string) (*benchdef.Result, error) {
	tmp := filepath.Join(e.dir, "out.jsonl")
	_ = os.Remove(tmp)
	quiet()
	b0, o0, t0 := busy(), procCPU(e.drv)+procCPU(e.server)+selfCPU(), time.Now()
	logf := filepath.Join(e.dir, filepath.Base(strings.Fields(prog)[0])+".log")
	c := start(prog, logf, append(args, "--out="+tmp)...)
	err := c.Wait()
	el := time.Since(t0).Seconds()
	own := c.ProcessState.UserTime().Seconds() + c.ProcessState.SystemTime().Seconds() + procCPU(e.drv) + procCPU(e.server) + selfCPU() - o0
	noise := (busy() - b0 - own) / el / float64(runtime.NumCPU()) * 100
	b, rerr := os.ReadFile(tmp)
	if rerr != nil {
		tail, _ := exec.Command("tail", "-n3", logf).Output()
		return nil, fmt.Errorf("%s: %v, no result: %s", prog, err, tail)
	}
	r := &benchdef.Result{}
	if uerr := json.Unmarshal(b, r); uerr != nil {
		return nil, uerr
	}
	r.NoisePct = benchdef.Round(max(0, noise))
	r.FS = e.fs
	if err != nil {
		return r, fmt.Errorf("%s: %w: %s", prog, err, r.FirstErr)
	}
	return r, nil
}

// label returns the flags that every program takes.
func (e *env) label(rep int) []string {
	return []string{
		fmt.Sprintf("--pods=%d", e.pods), fmt.Sprintf("--volumes=%d", e.volumes), "--mode=" + e.mode,
		fmt.Sprintf("--latency-ms=%g", float64(e.latency)/1e6), "--workload=" + e.workload, fmt.Sprintf("--rep=%d", rep),
		"--control-socket=" + e.drvCtl,
	}
}

// direct returns the runs of the bare calls.
func (e *env) direct(rep int) (runs []func() (*benchdef.Result, error)) {
	if e.noDirect {
		return nil
	}
	n := e.pods * e.volumes
	concs := strings.Split(*conc, ",")
	if e.latency > 0 && n > 64 { // with a slow driver, all calls at once are the floor
		concs = append(concs, strconv.Itoa(n))
	}
	for _, cc := range concs {
		c, err := strconv.Atoi(cc)
		if err != nil {
			log.Fatalf("--direct-concurrency: %v", err)
		}
		if c > n && c != 1 && (c != 8 || n == 1) || e.latency > 0 && c < 32 && n > 100 {
			continue // the same as a lower concurrency, or hopeless
		}
		args := append(e.label(rep), "--root="+filepath.Join(e.dir, "d"+cc), "--socket="+e.drvSock, "--concurrency="+cc,
			fmt.Sprintf("--variant=%s", e.variant), fmt.Sprintf("--iterations=%d", max(1, e.iters, min(5, 2000/n))))
		runs = append(runs, func() (*benchdef.Result, error) { return e.once("directbench", args...) })
	}
	return runs
}

// system returns the run of one system under test.
func (e *env) system(name, prog string, rep int) func() (*benchdef.Result, error) {
	n := 0
	return func() (*benchdef.Result, error) {
		n++
		root := filepath.Join(e.dir, fmt.Sprintf("%s%d", name, n))
		args := append(e.label(rep), "--root="+root, "--registration-dir="+e.regDir, "--variant="+e.variant)
		if e.api == "http" {
			args = append(args, "--api="+e.apiURL, "--api-control-socket="+e.apiCtl, fmt.Sprintf("--qps=%g", e.qps), fmt.Sprintf("--burst=%d", e.burst))
		}
		if e.phase == "restart" {
			if _, err := e.once(prog, append(args, "--phase=mount")...); err != nil {
				return nil, err
			}
			args = append(args, "--phase=restart")
		} else {
			args = append(args, "--phase="+e.phase, fmt.Sprintf("--iterations=%d", max(1, e.iters)))
		}
		if e.idle > 0 {
			args = append(args, "--idle="+e.idle.String(), "--idle-resync="+e.idleSync.String())
		}
		r, err := e.once(prog, args...)
		if r != nil {
			r.System = name
		}
		return r, err
	}
}
