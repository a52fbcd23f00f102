package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Schedules lists the schedules of snapshots.
func (c *Client) Schedules(ctx context.Context) ([]server.ScheduleStatus, error) {
	return list[server.ScheduleStatus](ctx, c, "/v1/schedules")
}

// SetSchedule creates or changes a schedule. The answer's note says which snapshots that deletes.
func (c *Client) SetSchedule(ctx context.Context, r server.ScheduleRequest) (done server.Applied, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return done, fmt.Errorf("encode schedule %s/%s: %w", r.Namespace, r.Name, err)
	}
	err = c.call(ctx, request{
		method: http.MethodPut, path: schedulePath(r.Namespace, r.Name), body: body,
	}, &done)
	return done, err
}

// RemoveSchedule removes a schedule. Its snapshots stay.
func (c *Client) RemoveSchedule(ctx context.Context, ns, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: schedulePath(ns, name)}, nil)
}

func schedulePath(ns, name string) string {
	return "/v1/schedules/" + url.PathEscape(ns) + "/" + url.PathEscape(name)
}
