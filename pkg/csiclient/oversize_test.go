package csiclient

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// What a driver gave is sent beyond CSI's limit, and the log says so once for a connection, without the value.
func TestARequestBeyondTheLimitIsWarnedOfOnce(t *testing.T) {
	log := &logBuffer{}
	d := &Driver{log: slog.New(slog.NewTextHandler(log, nil))}
	large := map[string]string{"ports": strings.Repeat("fc", maxMap)}
	d.warnOversize("NodeStageVolume", &csi.NodeStageVolumeRequest{PublishContext: map[string]string{"k": "v"}})
	if log.String() != "" {
		t.Errorf("of a small request: %s", log)
	}
	for range 2 {
		d.warnOversize("NodeStageVolume", &csi.NodeStageVolumeRequest{PublishContext: large, VolumeContext: large})
		d.warnOversize("DeleteVolume", &csi.DeleteVolumeRequest{Secrets: large})
	}
	if got := log.String(); strings.Count(got, "more than CSI allows") != 1 || !strings.Contains(got, "field=volume_context bytes=8197") || strings.Contains(got, "fcfc") {
		t.Errorf("log: %s", got)
	}
}
