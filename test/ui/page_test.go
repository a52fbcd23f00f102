package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// limit turns a hang into a failure.
const limit = 5 * time.Minute

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers: [{name: c, image: i, volumeMounts: [{name: cache, mountPath: /c}]}]
  volumes: [{name: cache, emptyDir: {}}]
`

// The mistake is on purpose: no process serves this driver.
const stuckPod = `
apiVersion: v1
kind: Pod
metadata: {name: stuck, namespace: default}
spec:
  containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]
  volumes: [{name: data, csi: {driver: nobody.example}}]
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: nobody.example}
spec: {volumeLifecycleModes: [Ephemeral], attachRequired: false}
`

// daemon is csi-volmgr in a mount namespace of its own.
type daemon struct {
	program, socket, page string
}

func startDaemon(t *testing.T) daemon {
	t.Helper()
	program := os.Getenv("CSI_VOLMGR")
	if program == "" {
		t.Fatal("CSI_VOLMGR is not set: run this by make ui-test")
	}
	dir, err := os.MkdirTemp("", "ui-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := daemon{program: program, socket: filepath.Join(dir, "sock")}
	cmd := exec.Command("unshare", "--mount", "--propagation=private", "sh", "-c", `mount -t tmpfs ui-test "$0" && exec "$@"`, dir,
		program, "run", "--root-dir="+dir+"/root", "--state-dir="+dir+"/state", "--socket="+d.socket, "--http-address=127.0.0.1:0", "--node-name=ui-node", "--storage-id=ui-node")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	address := ""
	for address == "" && lines.Scan() {
		address = httpAddress(lines.Text())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		_ = cmd.Wait()
	})
	if address == "" {
		t.Fatal("the program ended before it had an address")
	}
	// The socket is in that namespace, so commands have to enter it.
	d.program, d.page = fmt.Sprintf("nsenter --mount --target %d %s", cmd.Process.Pid, program), "http://"+address+"/ui/"
	return d
}

// httpAddress finds the address in the log line of the start.
func httpAddress(line string) string {
	if !strings.Contains(line, "daemon starts") {
		return ""
	}
	_, after, _ := strings.Cut(line, " http=")
	address, _, _ := strings.Cut(after, " ")
	return address
}

func (d daemon) verb(t *testing.T, stdin string, args ...string) {
	t.Helper()
	words := append(strings.Fields(d.program), "--socket="+d.socket)
	cmd := exec.CommandContext(t.Context(), words[0], append(words[1:], args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
}

// browser opens a tab; what the page's script logs goes to the test's log.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.Flag("no-sandbox", true), chromedp.UserDataDir(t.TempDir()), chromedp.ExecPath("/usr/bin/chromium"),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(limit))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf))
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, limit)
	t.Cleanup(stop)
	return ctx
}

func do(t *testing.T, ctx context.Context, steps ...step) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func value[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

type step = chromedp.Action[chromedp.Void]

// script runs an expression for its effect.
func script(expression string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Evaluate[bool](expression+"; true")(ctx, target)
		return chromedp.Void{}, err
	}
}

// until waits in the page until an expression is true, and evaluates it at each change of
// the document.
func until(expression string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Poll[bool](expression, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(limit))(ctx, target)
		if err != nil {
			err = fmt.Errorf("wait in the page for %s: %w", expression, err)
		}
		return chromedp.Void{}, err
	}
}

func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#pods .row')].find((r) => r.querySelector('.name').textContent === %q)`, name)
}

// shot saves a picture of the page if UI_SHOTS is set.
func shot(t *testing.T, name string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		png, err := chromedp.FullScreenshot(100)(ctx, target)
		dir := os.Getenv("UI_SHOTS")
		if err != nil || dir == "" {
			return chromedp.Void{}, err
		}
		path := filepath.Join(dir, name+".png")
		t.Logf("screenshot %s", path)
		return chromedp.Void{}, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, png, 0o644))
	}
}

// picture saves the visible part of the page for the documents if UI_DOCS is set, with few
// colours and bytes.
func picture(t *testing.T, name string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		dir := os.Getenv("UI_DOCS")
		if dir == "" {
			return chromedp.Void{}, nil
		}
		b, err := chromedp.CaptureScreenshot()(ctx, target)
		if err != nil {
			return chromedp.Void{}, err
		}
		small, err := fewColours(b)
		if err != nil {
			return chromedp.Void{}, err
		}
		if t.Logf("picture %s: %d bytes", name, len(small)); len(small) > 64<<10 {
			return chromedp.Void{}, fmt.Errorf("picture %s: %d bytes are too many to keep", name, len(small))
		}
		return chromedp.Void{}, os.WriteFile(filepath.Join(dir, name+".png"), small, 0o644)
	}
}

func TestPageShowsTheNodeLive(t *testing.T) {
	d := startDaemon(t)
	ctx := browser(t)
	do(t, ctx, chromedp.EmulateViewport(1100, 620), chromedp.Navigate(d.page),
		until(`document.querySelector('#link').className === 'live'`))
	if node := value[string](t, ctx, `document.querySelector('#node').textContent`); node != "ui-node" {
		t.Errorf("the page is of node %q", node)
	}

	// A change appears without a reload, as a row and in the timeline.
	d.verb(t, webPod, "apply", "-f", "-")
	do(t, ctx, until(row("default/web")+`?.querySelector('.state').textContent === 'ready'`),
		until(`document.querySelector('#timeline').textContent.includes('default/web')`))

	// A mistake appears with its reason, in the same words as on the command line.
	d.verb(t, stuckPod, "apply", "-f", "-")
	do(t, ctx, until(row("default/stuck")+`?.querySelector('li .why')?.textContent.includes('nobody.example')`),
		script(row("default/stuck")+`.querySelector('button').click()`),
		until(`document.querySelector('#explain').open && document.querySelector('#explain-text').textContent.startsWith('pod default/stuck')`),
		until(`document.querySelector('#explain-text').textContent.includes('because      ' + `+row("default/stuck")+`.querySelector('li .why').textContent + '\n')`),
		shot(t, "explain"), scheme("dark"), picture(t, "page-dark"), scheme("light"), script(`document.querySelector('#explain button').click()`))

	// The filter hides the pods that are well.
	do(t, ctx, script(`document.querySelector('#unwell').click()`), until(`document.querySelectorAll('#pods .row').length === 1`),
		shot(t, "filtered"), script(`document.querySelector('#unwell').click()`), until(`document.querySelectorAll('#pods .row').length === 2`))

	// Light and dark differ, and a phone shows all without scrolling sideways.
	background := `getComputedStyle(document.body).backgroundColor`
	do(t, ctx, scheme("light"), shot(t, "light"), picture(t, "page-light"))
	light := value[string](t, ctx, background)
	do(t, ctx, scheme("dark"), shot(t, "dark"))
	if dark := value[string](t, ctx, background); light == dark {
		t.Errorf("the page is %s in light and in dark", light)
	}
	do(t, ctx, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), shot(t, "phone"), picture(t, "page-phone"))
	if value[bool](t, ctx, `document.documentElement.scrollWidth > window.innerWidth`) {
		t.Error("a phone has to scroll sideways")
	}

	// A deleted pod disappears from the page.
	d.verb(t, "", "delete", "pod", "web")
	do(t, ctx, until(`!`+row("default/web")))
}

func scheme(name string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
	}
}
