package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// maxText bounds a plugin's text in an error, in bytes.
const maxText = 256

// driverName is CSI 1.13's rule for GetPluginInfo.name, except for its length.
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$`)

const maxDriverName = 63

// errIgnored means a plugin of another type. Its registrar is told nothing: a kubelet may serve it, and a refusal would
// make it exit.
var errIgnored = errors.New("ignored")

// dial returns a new connection to a registration socket. Each step of the protocol has
// its own connection, because the process may have been replaced in between.
func dial(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialTrusted(ctx, path) }),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	)
}

// dialTrusted connects to a registration socket. It refuses one on which neither root nor
// this process's user listens, because drivers receive secrets.
func dialTrusted(ctx context.Context, path string) (net.Conn, error) {
	conn, err := unixsocket.DialTrusted(ctx, path)
	if _, other := errors.AsType[*unixsocket.PeerError](err); other {
		return nil, fmt.Errorf("%w: %w, and only root may register drivers", ErrRefused, err)
	}
	return conn, err
}

// trusted returns dialTrusted's error if it wraps ErrRefused. gRPC reports that error only
// as Unavailable.
func trusted(ctx context.Context, path string) error {
	conn, err := dialTrusted(ctx, path)
	if err == nil {
		return conn.Close()
	}
	if errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// getInfo calls GetInfo on a registration socket.
func getInfo(ctx context.Context, path string, timeout time.Duration) (*registerapi.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(path)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	info, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
	if status.Code(err) == codes.Unavailable {
		if refused := trusted(ctx, path); refused != nil {
			return nil, refused
		}
	}
	if status.Code(err) == codes.Unimplemented {
		return nil, fmt.Errorf("GetInfo: %w: this is probably a driver's CSI socket and not a registration socket; move it "+
			"out of this directory, and put its registrar's socket here", plain(err))
	}
	if err != nil {
		return nil, fmt.Errorf("GetInfo: %w", plain(err))
	}
	return info, nil
}

// notify sends a registrar the result of its registration. A registrar that does not
// implement the call is no error.
func notify(ctx context.Context, path string, s *registerapi.RegistrationStatus) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	conn, err := dial(path)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	_, err = registerapi.NewRegistrationClient(conn).NotifyRegistrationStatus(ctx, s)
	if err != nil && status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("NotifyRegistrationStatus: %w", plain(err))
	}
	return nil
}

// checkInfo converts a plugin's answer to GetInfo to a Plugin. Its error wraps ErrRefused
// or is errIgnored, because a retry would give the same answer.
func checkInfo(info *registerapi.PluginInfo, socket string) (Plugin, error) {
	if info.GetType() != registerapi.CSIPlugin {
		return Plugin{}, fmt.Errorf("plugin type %q: %w: only %s is served here", shown(info.GetType()), errIgnored,
			registerapi.CSIPlugin)
	}
	name := info.GetName()
	if len(name) > maxDriverName || !driverName.MatchString(name) {
		return Plugin{}, fmt.Errorf("driver name %q: %w: CSI allows letters, digits, '-' and '.', at most %d", shown(name),
			ErrRefused, maxDriverName)
	}
	p := Plugin{Name: state.DriverName(name), socket: socket}
	if err := checkVersions(info.GetSupportedVersions()); err != nil {
		return p, err
	}
	var err error
	p.Endpoint, err = endpointPath(info.GetEndpoint(), socket)
	return p, err
}

// checkVersions returns an error unless a supported version is 1.x. Like the kubelet, it
// ignores invalid versions.
func checkVersions(supported []string) error {
	for _, s := range supported {
		if v, err := version.ParseSemantic(s); err == nil && v.Major() == 1 {
			return nil
		}
	}
	return fmt.Errorf("supported versions %q: %w: none is a CSI version 1.x", shown(strings.Join(supported, " ")),
		ErrRefused)
}

// endpointPath returns the path of the CSI socket. A plugin without an endpoint serves
// CSI on the registration socket.
func endpointPath(endpoint, socket string) (string, error) {
	if endpoint == "" {
		return socket, nil
	}
	path, err := unixsocket.EndpointPath(endpoint)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return path, nil
}

// plain converts a gRPC error to one with the code's name and the message.
func plain(err error) error {
	s := status.Convert(err)
	return fmt.Errorf("%s: %s", s.Code(), shown(s.Message()))
}

// shown makes a plugin's text fit for a message: of limited length and on one line.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, clip.Text(s, maxText, "..."))
}
