package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	volumes "github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// mountHelper is the name under which mount(8) starts this program for type csi.
const mountHelper = "mount.csi"

// Exit codes of mount(8) and its helpers.
const (
	mountUsage  = 1
	mountFailed = 32
)

// mountTime is how long a mount waits for its volume by default.
const mountTime = 5 * time.Minute

// mountRequest is a request of mount(8) to its helper.
type mountRequest struct {
	name   string // NAMESPACE/CLAIM; the line may have "csi:" before it
	dir    string
	fake   bool
	words  []string // options of the bind mount
	socket string
	wait   time.Duration
	// patience is how long the mount waits for a driver that is not up; 0 means the daemon's default.
	patience time.Duration
	// options are the volume's options.
	options map[string]string
	remount bool
}

// mountCSI is /sbin/mount.csi: it mounts a named volume and binds it to a directory. It returns an exit
// code of mount(8).
func (p *program) mountCSI(ctx context.Context, args []string) int {
	r, err := mountArgs(args)
	if err != nil {
		_, _ = fmt.Fprintln(p.stderr, mountHelper+":", err)
		return mountUsage
	}
	if r.fake {
		return 0
	}
	if r.remount {
		err = remount(r)
	} else {
		err = p.mountNamed(ctx, r)
	}
	if err != nil {
		_, _ = fmt.Fprintf(p.stderr, "%s: %s at %s: %s\n", mountHelper, r.name, r.dir, p.explainError(err))
		return mountFailed
	}
	return 0
}

// mountNamed asks the daemon to mount the volume, and binds it to the directory.
func (p *program) mountNamed(ctx context.Context, r mountRequest) error {
	dir, err := mountDirectory(r.dir)
	if err != nil {
		return err // before a volume is made
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	p.socket = r.socket
	c := p.client()
	defer c.Close()
	_, err = c.NamedVolume(ctx, r.name)
	if errors.Is(err, server.ErrNotFound) || err == nil && len(r.options) > 0 {
		options := r.options
		if len(options) == 0 { // the claim exists, or the daemon says that it does not
			_, claim, _ := strings.Cut(r.name, "/")
			options = map[string]string{"claim": claim}
		}
		_, err = c.CreateNamed(ctx, server.NamedRequest{
			Name: r.name, FrontEnd: volumes.Mount, Options: options, PatienceSeconds: int(r.patience.Seconds()),
		})
	}
	var path string
	if err == nil {
		path, err = c.MountNamed(ctx, volumes.Mount, r.name)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return p.lateMount(context.WithoutCancel(ctx), c, r)
	}
	if err != nil {
		return err
	}
	return bindNamed(ctx, path, dir, r.words)
}

// mountDirectory returns the path without symbolic links of a directory to mount at.
func mountDirectory(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the directory does not exist: mkdir -p %s, or add the option X-mount.mkdir", path)
	}
	if err != nil {
		return "", err
	}
	switch st, err := os.Stat(dir); {
	case err != nil:
		return "", err
	case !st.IsDir():
		return "", fmt.Errorf("%s is no directory", path)
	}
	return dir, nil
}

// bindNamed binds the volume's path to the directory with the options of the line. What the volume's own mount
// forbids stays forbidden, and what is mounted below the directory does not reach the volume's pods. Where the volume
// is mounted already, mount -a says its line again: then only the options change.
func bindNamed(ctx context.Context, path, dir string, words []string) error {
	source, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	k := mount.New()
	at, err := k.Look(ctx, dir)
	if err != nil {
		return err
	}
	if at.Mounted {
		from, err := os.Stat(source)
		if err != nil {
			return err
		}
		if to, err := os.Stat(dir); err == nil && os.SameFile(from, to) {
			return k.AdjustRestricted(source, dir, words)
		}
	}
	return k.BindRestricted(source, dir, words)
}

// lateMount returns the error of a mount that took too long: what its volume waits for.
func (p *program) lateMount(ctx context.Context, c *client.Client, r mountRequest) error {
	ctx, cancel := context.WithTimeout(ctx, daemonDeadline)
	defer cancel()
	v, err := c.NamedVolume(ctx, r.name)
	if err != nil || len(v.Waits) == 0 {
		return fmt.Errorf("the volume is not mounted after %s", r.wait)
	}
	return fmt.Errorf("the volume is not mounted after %s: %s", r.wait, strings.Join(v.Waits, "; "))
}

// remount changes the options of the bind mount that the line has, and keeps the others.
func remount(r mountRequest) error {
	dir, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		return err
	}
	return mount.New().Adjust(dir, r.words)
}

// bindOptions returns the options of the bind mount by mount(8)'s names, with those that each stands for. "async" and
// "defaults" change nothing: a bind mount has neither, and keeps what the volume's own mount forbids.
func bindOptions() map[string][]string {
	options := map[string][]string{
		"async": nil, "defaults": nil,
		"user": {"noexec", "nosuid", "nodev"}, "users": {"noexec", "nosuid", "nodev"},
		"owner": {"nosuid", "nodev"}, "group": {"nosuid", "nodev"},
	}
	for _, word := range []string{
		"ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "nodiratime", "relatime",
	} {
		options[word] = []string{word}
	}
	return options
}

// forMount reports whether mount(8) and systemd read the option themselves.
func forMount(option string) bool {
	return strings.HasPrefix(option, "x-") || strings.HasPrefix(option, "X-") || strings.HasPrefix(option, "comment=") ||
		slices.Contains([]string{"_netdev", "nofail", "auto", "noauto", "nouser"}, option)
}

// mountArgs reads SPEC DIR [-sfnv] [-N namespace] [-o options] [-t type] (mount(8), EXTERNAL HELPERS).
func mountArgs(args []string) (mountRequest, error) {
	r := mountRequest{socket: defaultSocket, wait: mountTime, options: map[string]string{}}
	var words []string
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == "-o" || word == "-t" || word == "-N":
			if len(args) == 0 {
				return r, fmt.Errorf("%s: expected a value after it", word)
			}
			value := args[0]
			args = args[1:]
			switch {
			case word == "-N":
				return r, errors.New("-N: csi-volmgr mounts in the namespace that its helper runs in: use nsenter")
			case word == "-o":
				if err := r.read(value); err != nil {
					return r, err
				}
			}
		case strings.HasPrefix(word, "-"):
			if rest := strings.Trim(word[1:], "sfnv"); rest != "" {
				return r, fmt.Errorf("unknown option -%s", rest)
			}
			r.fake = r.fake || strings.Contains(word, "f")
		default:
			words = append(words, word)
		}
	}
	if len(words) != 2 {
		return r, fmt.Errorf("expected NAMESPACE/CLAIM and a directory, found %q", words)
	}
	name, err := mountSource(words[0])
	if err != nil {
		return r, err
	}
	r.name, r.dir = name, words[1]
	if !filepath.IsAbs(r.dir) {
		return r, fmt.Errorf("directory: found %q, want an absolute path", r.dir)
	}
	return r, nil
}

// sourcePrefix may stand before a volume's name. mount(8) replaces a source that is a path in its working directory by
// the whole path, and at a boot that is the root directory; no path begins so.
const sourcePrefix = "csi:"

// mountSource returns the volume's name, NAMESPACE/CLAIM, for the source of a line.
func mountSource(spec string) (string, error) {
	if filepath.IsAbs(spec) {
		return "", fmt.Errorf("source: found the path %s, want NAMESPACE/CLAIM: mount(8) makes a path of a source that "+
			"exists in its working directory, which is / at a boot; write %sNAMESPACE/CLAIM", spec, sourcePrefix)
	}
	name := strings.TrimSuffix(strings.TrimPrefix(spec, sourcePrefix), "/")
	if !strings.Contains(name, "/") {
		name = defaultNS + "/" + name
	}
	return name, nil
}

// read reads the value of -o.
func (r *mountRequest) read(list string) error {
	binds := bindOptions()
	var mountOptions []string
	for option := range strings.SplitSeq(list, ",") {
		key, value, has := strings.Cut(option, "=")
		words, forBind := binds[option]
		switch {
		case option == "" || forMount(option):
		case option == "remount":
			r.remount = true
		case forBind:
			r.words = append(r.words, words...)
		case key == "socket" && has:
			r.socket = value
		case key == "timeout" && has:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return fmt.Errorf("option timeout: found %q, want a duration such as 5m", value)
			}
			r.wait, r.patience = d, d*9/10 // the daemon's reason arrives within the time
		case key == "mountOption" && has:
			mountOptions = append(mountOptions, value)
		case has:
			r.options[key] = value
		default:
			return fmt.Errorf("unknown option %s; expected one of the flags %s, or an option of the volume as KEY=VALUE",
				option, strings.Join(slices.Sorted(maps.Keys(binds)), ", "))
		}
	}
	if len(mountOptions) > 0 {
		r.options["mountOptions"] = strings.Join(mountOptions, ",")
	}
	return nil
}
