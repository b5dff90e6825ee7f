package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ipamd/ipamd/internal/broadcast"
)

// statusEvery is the time between two comparisons of systemd's status line.
const statusEvery = 5 * time.Second

// Notify notifies systemd (sd_notify(3)). Without a systemd nothing happens.
func Notify(log *slog.Logger, lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		log.Warn("systemd cannot be notified", "what", lines[0], "err", err)
	}
}

// Status notifies systemd that ipamd is up, and from then on of its status line, until
// ctx ends or stopping reports true. It returns nil.
func Status(ctx context.Context, log *slog.Logger, line func() string, stopping func() bool) error {
	status := line()
	Notify(log, daemon.SdNotifyReady, status)
	for broadcast.Pause(ctx, statusEvery) {
		if now := line(); now != status && !stopping() {
			status = now
			Notify(log, status)
		}
	}
	return nil
}
