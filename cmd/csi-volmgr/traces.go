package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/tracing"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
)

// lastSpans bounds the wait for a collector to take the last spans at the end.
const lastSpans = 2 * time.Second

// traced sends spans of the node's calls to the collector of --traces-endpoint until end is called.
func traced(ctx context.Context, cfg *wire.Config, endpoint string, logger *slog.Logger) (end func(), err error) {
	if endpoint == "" {
		return func() {}, nil
	}
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("spans were not sent", "err", err) }))
	t, err := tracing.New(ctx, endpoint, cfg.Name, thisVersion().Version)
	if err != nil {
		return nil, err
	}
	cfg.OnCall = t.Call
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		if err := t.Close(ctx); err != nil {
			logger.Warn("the last spans were not sent", "err", err)
		}
	}, nil
}
