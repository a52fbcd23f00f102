package iscsi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrSource means that a volume's source does not describe an iSCSI target.
var ErrSource = errors.New("invalid iscsi source")

const (
	defaultPort  = "3260" // RFC 7143, section 13.2
	defaultIface = "default"
	maxIQN       = 223 // RFC 7143, section 4.2.7.2
	maxLUN       = 255 // Kubernetes' validation of iscsi.lun
	maxName      = 64
)

// portal is the address of a target.
type portal struct{ host, port string }

// String returns the portal in iscsiadm's notation.
func (p portal) String() string {
	if strings.Contains(p.host, ":") {
		return "[" + p.host + "]:" + p.port
	}
	return p.host + ":" + p.port
}

// target is a parsed source.
type target struct {
	iqn     string
	portals []portal
	// base is the interface that the volume names. iface is the one that is used: base,
	// or a copy of the default interface with the volume's initiator name.
	base, iface, initiator string
	lun                    int32
	discoveryCHAP, chap    bool
	want                   disk.Want
}

// needsSecret reports whether a login presents a name and a password.
func (t target) needsSecret() bool { return t.chap || t.discoveryCHAP }

// parse reads the source in a volume's spec.
func parse(spec state.Spec) (target, error) {
	var src corev1.ISCSIVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return target{}, fmt.Errorf("iscsi: %w: %w", ErrSource, err)
	}
	bad := func(field string, found any, want string) (target, error) {
		return target{}, fmt.Errorf("iscsi.%s: found %.80q, want %s: %w", field, fmt.Sprint(found), want, ErrSource)
	}
	t := target{
		iqn: src.IQN, iface: src.ISCSIInterface, lun: src.Lun, discoveryCHAP: src.DiscoveryCHAPAuth,
		chap: src.SessionCHAPAuth,
	}
	if !slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(p string) bool {
		return strings.HasPrefix(t.iqn, p)
	}) || !plain(t.iqn, maxIQN) {
		return bad("iqn", src.IQN, "a name that begins with iqn., eui. or naa. and has letters, digits and '.', ':', '-', "+
			"'_' only")
	}
	if t.iface == "" {
		t.iface = defaultIface
	}
	if !plain(t.iface, maxName) {
		return bad("iscsiInterface", src.ISCSIInterface, "the name of an interface of open-iscsi")
	}
	if t.lun < 0 || t.lun > maxLUN {
		return bad("lun", src.Lun, "0 to 255")
	}
	for i, text := range append([]string{src.TargetPortal}, src.Portals...) {
		p, ok := parsePortal(text)
		if !ok && i == 0 {
			return bad("targetPortal", text, "an IP address or a host name, and a port or none")
		}
		if !ok {
			return bad(fmt.Sprintf("portals[%d]", i-1), text, "an IP address or a host name, and a port or none")
		}
		if !slices.Contains(t.portals, p) {
			t.portals = append(t.portals, p)
		}
	}
	t.base = t.iface
	if src.InitiatorName != nil && *src.InitiatorName != "" {
		t.initiator = *src.InitiatorName
		if !plain(t.initiator, maxIQN) {
			return bad("initiatorName", t.initiator, "the name of an iSCSI initiator")
		}
		if t.base != defaultIface {
			return bad("iscsiInterface", t.base, "none, or default, together with initiatorName")
		}
		t.iface = "csi-volmgr-" + shortHash(t.initiator)
	}
	t.want = disk.Want{FSType: src.FSType, ReadOnly: src.ReadOnly, Flags: spec.MountOptions()}
	if t.want.FSType == "" {
		t.want.FSType = disk.DefaultFS
	}
	return t, nil
}

// plain reports whether s consists of letters, digits and ".:-_" and can be neither an
// option nor a path.
func plain(s string, limit int) bool {
	return s != "" && len(s) <= limit && s[0] != '-' && s[0] != '.' && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".:-_", c)
	})
}

func parsePortal(s string) (portal, bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && a.Zone() == "" {
		return portal{a.String(), defaultPort}, true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 && ap.Addr().Zone() == "" {
		return portal{ap.Addr().String(), strconv.Itoa(int(ap.Port()))}, true
	}
	host, port, has := strings.Cut(s, ":")
	if !has {
		port = defaultPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return portal{host, strconv.FormatUint(n, 10)}, err == nil && n != 0 && plain(host, 253) &&
		!strings.Contains(host, ":")
}
